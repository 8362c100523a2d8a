//! Gives bindgen's output the names that it should have.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Item, Type};

use crate::preprocess::Macro;

/// What bindgen calls a type without a name; followed by a number.
const ANONYMOUS: &str = "_bindgen_ty_";

/// Names anonymous types after their place: the type of `wr` in `ibv_send_wr` is `ibv_send_wr_wr`, and that
/// of `rdma` in it `ibv_send_wr_wr_rdma`. bindgen only numbers them, in the order in which it meets them.
/// Anonymous enums at top level become plain integers.
pub(crate) fn name_anonymous(file: &mut syn::File) {
    let mut names = HashMap::new();
    let mut plain = HashMap::new();
    for item in &file.items {
        match item {
            Item::Struct(item) => place(&item.ident, &item.fields, &mut names),
            Item::Union(item) => place(&item.ident, &syn::Fields::Named(item.fields.clone()), &mut names),
            Item::Type(item) if item.ident.to_string().starts_with(ANONYMOUS) => {
                plain.insert(item.ident.to_string(), item.ty.to_token_stream());
            }
            _ => {}
        }
    }
    file.items
        .retain(|item| !matches!(item, Item::Type(item) if plain.contains_key(&item.ident.to_string())));
    for item in &mut file.items {
        let tokens = replace(item.to_token_stream(), &names, &plain);
        if let Ok(renamed) = syn::parse2(tokens) {
            *item = renamed;
        }
    }
}

/// Notes the (parent, field) of each anonymous type that is used by a field.
fn place(parent: &Ident, fields: &syn::Fields, names: &mut HashMap<String, (String, String)>) {
    for field in fields {
        match (&field.ident, base(&field.ty)) {
            (Some(name), Some(ty)) if ty.contains(ANONYMOUS) => {
                names.entry(ty).or_insert_with(|| (parent.to_string(), name.to_string()));
            }
            _ => {}
        }
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

/// The name after its place, from the outermost type inwards.
fn full(name: &str, names: &HashMap<String, (String, String)>) -> String {
    match names.get(name) {
        Some((parent, field)) => format!("{}_{field}", full(parent, names)),
        None => name.to_owned(),
    }
}

fn replace(
    tokens: TokenStream,
    names: &HashMap<String, (String, String)>,
    plain: &HashMap<String, TokenStream>,
) -> TokenStream {
    let mut out = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), replace(group.stream(), names, plain));
                inner.set_span(group.span());
                out.extend([TokenTree::Group(inner)]);
            }
            TokenTree::Ident(ident) => {
                let text = ident.to_string();
                if let Some(ty) = plain.get(&text) {
                    out.extend(ty.clone());
                } else {
                    out.extend([TokenTree::Ident(Ident::new_raw_safe(&full(&text, names), &ident))]);
                }
            }
            other => out.extend([other]),
        }
    }
    out
}

/// Makes an identifier, or keeps the old one where nothing changed (which may be a raw one, `r#type`).
trait NewIdent {
    fn new_raw_safe(name: &str, old: &Ident) -> Ident;
}

impl NewIdent for Ident {
    fn new_raw_safe(name: &str, old: &Ident) -> Ident {
        if old == name { old.clone() } else { Ident::new(name, old.span()) }
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
    for Macro { name, body } in macros {
        if constants.contains_key(name) || types.contains(name) {
            continue;
        }
        let doc = format!("`#define {name} {body}`");
        let new = Ident::new(name, proc_macro2::Span::call_site());
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
