//! Gives bindgen's output the names that it should have.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{ForeignItem, Item, Type};

use crate::preprocess::Macro;

/// What bindgen calls a type without a name; followed by a number.
const ANONYMOUS: &str = "_bindgen_ty_";

/// Fields that lie where their type's alignment doesn't allow it: (struct, field, replacement).
///
/// C can have a struct `packed` and `aligned` at once, Rust cannot: bindgen keeps only the alignment, and would
/// put this field one byte too far. As bytes (in the order of the wire) it fits.
const UNALIGNED: [(&str, &str, &str); 1] = [("mlx5_wqe_ctrl_seg", "dci_stream_channel_id", "[u8; 2usize]")];

/// Replaces the types of such fields.
pub(crate) fn pack(file: &mut syn::File) {
    for item in &mut file.items {
        let Item::Struct(item) = item else { continue };
        for field in &mut item.fields {
            let Some(name) = &field.ident else { continue };
            let unaligned = UNALIGNED.iter().find(|(ty, field, _)| item.ident == ty && name == field);
            if let Some(Ok(ty)) = unaligned.map(|(.., ty)| syn::parse_str(ty)) {
                field.ty = ty;
            }
        }
    }
}

/// Names anonymous types after their place: the type of `wr` in `ibv_send_wr` is `ibv_send_wr_wr`, and that
/// of `rdma` in it `ibv_send_wr_wr_rdma`. bindgen only numbers them, in the order in which it meets them.
/// Anonymous enums at top level become plain integers. Returns the new names.
pub(crate) fn name_anonymous(file: &mut syn::File) -> HashSet<String> {
    let mut renamed = Renamed::default();
    let mut places = HashMap::new();
    let mut taken = HashSet::new();
    for item in &file.items {
        match item {
            Item::Struct(item) => {
                taken.insert(item.ident.to_string());
                place(&item.ident, item.fields.iter(), &mut places);
            }
            Item::Union(item) => {
                taken.insert(item.ident.to_string());
                place(&item.ident, item.fields.named.iter(), &mut places);
            }
            Item::Type(item) if item.ident.to_string().starts_with(ANONYMOUS) => {
                renamed.plain.insert(item.ident.to_string(), item.ty.to_token_stream());
            }
            Item::Type(item) => drop(taken.insert(item.ident.to_string())),
            _ => {}
        }
    }
    for old in places.keys() {
        let mut new = full(old, &places);
        while !taken.insert(new.clone()) {
            // Some header has a type of this name: `ibv_wc_status`, if the status were a union.
            new.push('_');
        }
        renamed.names.insert(old.clone(), new);
    }
    file.items.retain(
        |item| !matches!(item, Item::Type(item) if renamed.plain.contains_key(&item.ident.to_string())),
    );
    for item in &mut file.items {
        if let Ok(new) = syn::parse2(renamed.apply(item.to_token_stream())) {
            *item = new;
        }
    }
    renamed.names.into_values().collect()
}

/// Notes the (parent, field) of each anonymous type that is used by a field.
fn place<'a>(
    parent: &Ident,
    fields: impl Iterator<Item = &'a syn::Field>,
    places: &mut HashMap<String, (String, String)>,
) {
    for field in fields {
        match (&field.ident, base(&field.ty)) {
            (Some(name), Some(ty)) if ty.contains(ANONYMOUS) => {
                places.entry(ty).or_insert_with(|| (parent.to_string(), name.to_string()));
            }
            _ => {}
        }
    }
}

/// The name after its place, from the outermost type inwards.
fn full(name: &str, places: &HashMap<String, (String, String)>) -> String {
    match places.get(name) {
        Some((parent, field)) => format!("{}_{field}", full(parent, places)),
        None => name.to_owned(),
    }
}

/// The last name in a type, through arrays and pointers.
pub(crate) fn base(ty: &Type) -> Option<String> {
    match ty {
        Type::Array(array) => base(&array.elem),
        Type::Ptr(pointer) => base(&pointer.elem),
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// What to put for bindgen's names.
#[derive(Default)]
struct Renamed {
    names: HashMap<String, String>,
    plain: HashMap<String, TokenStream>,
}

impl Renamed {
    fn apply(&self, tokens: TokenStream) -> TokenStream {
        tokens.into_iter().flat_map(|token| self.token(token)).collect()
    }

    fn token(&self, token: TokenTree) -> TokenStream {
        match token {
            TokenTree::Group(group) => {
                TokenTree::Group(Group::new(group.delimiter(), self.apply(group.stream()))).into()
            }
            TokenTree::Ident(ident) => {
                let text = ident.to_string();
                match (self.plain.get(&text), self.names.get(&text)) {
                    (Some(ty), _) => ty.clone(),
                    (None, Some(new)) => TokenTree::Ident(Ident::new(new, ident.span())).into(),
                    (None, None) => TokenTree::Ident(ident).into(),
                }
            }
            TokenTree::Literal(literal) => {
                self.literal(&literal.to_string()).unwrap_or(literal).into_token_stream()
            }
            TokenTree::Punct(_) => token.into(),
        }
    }

    /// The text of a generated `Debug` begins with the type's name.
    fn literal(&self, text: &str) -> Option<proc_macro2::Literal> {
        let inner = text.strip_prefix('"')?.strip_suffix('"')?;
        let (name, rest) = inner.split_at(inner.find(' ')?);
        let new = self.names.get(name)?;
        // `{{` and `}}` are not escapes of the literal, so they go through as they are.
        Some(proc_macro2::Literal::string(&format!("{new}{rest}")))
    }
}

/// Adds what the headers say by `#define NEW OLD`, where OLD is a constant or a type that is bound.
pub(crate) fn add_aliases(file: &mut syn::File, macros: &[Macro]) {
    let mut constants = HashMap::new();
    let mut types = HashSet::new();
    for item in &file.items {
        match item {
            Item::Const(item) => {
                constants.insert(item.ident.to_string(), item.ty.to_token_stream());
            }
            Item::Type(item) => {
                types.insert(item.ident.to_string());
            }
            Item::Struct(item) => {
                types.insert(item.ident.to_string());
            }
            Item::Union(item) => {
                types.insert(item.ident.to_string());
            }
            _ => {}
        }
    }
    for Macro { name, parameters, body } in macros {
        if parameters.is_some() || constants.contains_key(name) || types.contains(name) {
            continue;
        }
        let doc = format!("`#define {name} {body}`");
        let new = Ident::new(name, Span::call_site());
        let Ok(old) = syn::parse_str::<Ident>(body) else { continue };
        let item = if let Some(ty) = constants.get(body) {
            quote!(#[doc = #doc] pub const #new: #ty = #old;)
        } else if types.contains(body) {
            quote!(#[doc = #doc] pub type #new = #old;)
        } else {
            continue;
        };
        if let Ok(item) = syn::parse2(item) {
            file.items.push(item);
        }
    }
}

/// Gives functions the names that macros give them: `#define NEW(a, b) OLD(a, b)`. An exported symbol that such
/// a macro hides is taken out, since a C program that writes its name doesn't call it.
///
/// rdma-core does this to a function whose struct has grown; the new function gets the struct's size. So do not
/// leave it to a list of today's names: `mlx5dv_create_flow` became a macro in 63.
pub(crate) fn add_shadows(file: &mut syn::File, macros: &[Macro]) {
    let functions: HashSet<String> = file.items.iter().flat_map(declared).collect();
    for Macro { name, parameters, body } in macros {
        let Some(parameters) = parameters else { continue };
        let Some((old, arguments)) = body.strip_suffix(')').and_then(|body| body.split_once('(')) else {
            continue;
        };
        let same = arguments.split(',').map(str::trim).eq(parameters.split(',').map(str::trim));
        let old = old.trim();
        if !same || !functions.contains(old) || crate::generate::SHADOWED.contains(&name.as_str()) {
            continue;
        }
        file.items.retain(|item| !declared(item).any(|function| function == *name));
        let (old, new) = (Ident::new(old, Span::call_site()), Ident::new(name, Span::call_site()));
        if let Ok(item) = syn::parse2(quote!(pub use self::#old as #new;)) {
            file.items.push(item);
        }
    }
}

/// The functions of an `extern` block; bindgen makes one block for each.
fn declared(item: &Item) -> impl Iterator<Item = String> + '_ {
    let items = match item {
        Item::ForeignMod(block) => block.items.as_slice(),
        _ => &[],
    };
    items.iter().filter_map(|item| match item {
        ForeignItem::Fn(function) => Some(function.sig.ident.to_string()),
        _ => None,
    })
}
