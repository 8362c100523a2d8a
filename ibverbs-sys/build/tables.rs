//! Writes the tables that the tests compare with the C compiler's view of the headers.
//!
//! They are made here and not in the tests because `offset_of!` needs the fields' names in the source.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use quote::ToTokens;
use syn::{Fields, ForeignItem, Item, Type};

use crate::preprocess::Macro;
use crate::rewrite::base;

/// Rust's names for C's integers.
const INTEGERS: [&str; 19] = [
    "c_char",
    "c_schar",
    "c_uchar",
    "c_short",
    "c_ushort",
    "c_int",
    "c_uint",
    "c_long",
    "c_ulong",
    "c_longlong",
    "c_ulonglong",
    "u8",
    "u16",
    "u32",
    "u64",
    "i8",
    "i16",
    "i32",
    "i64",
];

/// Words that C allows as names and Rust doesn't; bindgen puts a `_` behind them.
const KEYWORDS: [&str; 14] =
    ["as", "box", "fn", "impl", "in", "loop", "match", "mod", "move", "priv", "ref", "type", "use", "where"];

/// One struct or union.
struct Record<'a> {
    keyword: &'static str,
    fields: Vec<(String, &'a Type)>,
}

/// What there is in the bindings, by name.
struct Index<'a> {
    records: BTreeMap<String, Record<'a>>,
    integers: BTreeMap<String, &'a Type>,
    constants: Vec<(String, &'a Type)>,
    functions: BTreeSet<String>,
    /// The records that have no name in C.
    unnamed: &'a HashSet<String>,
}

/// The tables as Rust source, for `include!`.
pub(crate) fn render(file: &syn::File, unnamed: &HashSet<String>, macros: &[Macro]) -> String {
    let index = Index::new(file, unnamed);
    let mut text = String::new();
    index.types(&mut text);
    index.enums(&mut text, macros);
    text.push_str("pub(crate) static CONSTANTS: &[(&str, i128)] = &[\n");
    for (name, ty) in &index.constants {
        if index.is_integer(ty) {
            let _ = writeln!(text, "    ({name:?}, {name} as i128),");
        }
    }
    text.push_str("];\n");
    text
}

/// The functions: their names; imports that fail to compile if one cannot be reached; their addresses, which
/// fail to link if one is in no library.
pub(crate) fn render_functions(file: &syn::File) -> String {
    let functions = Index::new(file, &HashSet::new()).functions;
    let mut names = String::new();
    let mut imports = String::new();
    let mut addresses = String::new();
    for name in &functions {
        let _ = writeln!(names, "    {name:?},");
        let _ = writeln!(imports, "    pub(crate) use ibv_sys::{name};");
        let _ = writeln!(addresses, "        ({name:?}, ibv_sys::generated::{name} as *const () as usize),");
    }
    format!(
        "pub(crate) static FUNCTIONS: &[&str] = &[\n{names}];\n\
         mod imports {{\n{imports}}}\n\
         #[cfg(not(ibv_sys_headers_only))]\n\
         pub(crate) fn addresses() -> Vec<(&'static str, usize)> {{\n    vec![\n{addresses}    ]\n}}\n"
    )
}

impl<'a> Index<'a> {
    fn new(file: &'a syn::File, unnamed: &'a HashSet<String>) -> Self {
        let mut index = Self {
            records: BTreeMap::new(),
            integers: BTreeMap::new(),
            constants: Vec::new(),
            functions: BTreeSet::new(),
            unnamed,
        };
        for item in &file.items {
            match item {
                // bindgen's own helper types begin so; they aren't C's.
                Item::Struct(item) if !item.ident.to_string().starts_with("__Incomplete") => {
                    index.add("struct", &item.ident.to_string(), named(&item.fields));
                }
                Item::Union(item) => {
                    let fields = item.fields.named.iter();
                    let fields =
                        fields.filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.ty)));
                    index.add("union", &item.ident.to_string(), fields.collect());
                }
                Item::Const(item) => index.constants.push((item.ident.to_string(), &item.ty)),
                Item::Type(item) => drop(index.integers.insert(item.ident.to_string(), &item.ty)),
                // A function under the name that a macro gives it.
                Item::Use(item) => {
                    let text = item.tree.to_token_stream().to_string();
                    index.functions.extend(text.split_once(" as ").map(|(_, name)| name.trim().to_owned()));
                }
                Item::ForeignMod(item) => {
                    for item in &item.items {
                        if let ForeignItem::Fn(item) = item {
                            index.functions.insert(item.sig.ident.to_string());
                        }
                    }
                }
                _ => {}
            }
        }
        let aliases = std::mem::take(&mut index.integers);
        for (name, ty) in &aliases {
            if resolves(&aliases, name) {
                index.integers.insert(name.clone(), ty);
            }
        }
        index
    }

    fn add(&mut self, keyword: &'static str, name: &str, fields: Vec<(String, &'a Type)>) {
        self.records.insert(name.to_owned(), Record { keyword, fields });
    }

    fn is_integer(&self, ty: &Type) -> bool {
        matches!(ty, Type::Path(_))
            && base(ty)
                .is_some_and(|name| INTEGERS.contains(&name.as_str()) || self.integers.contains_key(&name))
    }

    fn types(&self, text: &mut String) {
        let mut visited = BTreeSet::new();
        text.push_str("pub(crate) static TYPES: &[Type] = &[\n");
        for (name, record) in &self.records {
            // bindgen's own fields stand for the body of a type that the headers only name.
            if self.unnamed.contains(name)
                || record.fields.iter().all(|(field, _)| field == "_unused" || field == "_address")
            {
                continue;
            }
            let c = format!("{} {name}", record.keyword);
            let _ = writeln!(
                text,
                "    Type {{ c: {c:?}, size: size_of::<{name}>(), align: align_of::<{name}>(), fields: &["
            );
            self.fields(text, name, record, "", "", &mut visited);
            text.push_str("    ] },\n");
        }
        text.push_str("];\n");
        let missed: Vec<_> = self.unnamed.iter().filter(|name| !visited.contains(*name)).collect();
        let _ = writeln!(text, "pub(crate) static UNVISITED: &[&str] = &{missed:?};");
    }

    /// The fields of a type under a path, and those of the unnamed types in it.
    fn fields(
        &self,
        text: &mut String,
        top: &str,
        record: &Record<'_>,
        rust: &str,
        c: &str,
        visited: &mut BTreeSet<String>,
    ) {
        for (field, ty) in &record.fields {
            let rust = format!("{rust}{field}");
            let inner = base(ty).filter(|ty| self.unnamed.contains(ty));
            // `u1`, `u2`: no name in C, so nothing that C could measure but the members.
            let nameless = inner.is_some() && is_prefix(field);
            let c_path = if nameless { c.to_owned() } else { format!("{c}{}", c_name(field)) };
            if !nameless {
                let ty = ty.to_token_stream().to_string();
                // A flexible array has no size in C.
                let size = if ty.contains("__IncompleteArrayField") {
                    "None".to_owned()
                } else {
                    format!("Some(size_of::<{ty}>())")
                };
                let _ = writeln!(
                    text,
                    "        Field {{ c: {c_path:?}, offset: offset_of!({top}, {rust}), size: {size} }},"
                );
            }
            if let (Some(inner), Type::Path(_)) = (inner, ty) {
                if let Some(record) = self.records.get(&inner) {
                    let c = if nameless { c_path } else { format!("{c_path}.") };
                    self.fields(text, top, record, &format!("{rust}."), &c, visited);
                    visited.insert(inner);
                }
            }
        }
    }

    /// Enums and integer typedefs: C's name, size, and whether there are negative values.
    fn enums(&self, text: &mut String, macros: &[Macro]) {
        let used: BTreeSet<String> = self.constants.iter().filter_map(|(_, ty)| base(ty)).collect();
        text.push_str("pub(crate) static INTEGERS: &[(&str, usize, bool)] = &[\n");
        for name in self.integers.keys() {
            let is_enum = used.contains(name) || macros.iter().any(|item| item.name == *name);
            let c = if is_enum { format!("enum {name}") } else { name.clone() };
            let _ = writeln!(text, "    ({c:?}, size_of::<{name}>(), <{name}>::MIN != 0),");
        }
        text.push_str("];\n");
    }
}

fn named(fields: &Fields) -> Vec<(String, &Type)> {
    fields.iter().filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.ty))).collect()
}

/// Whether an alias ends at an integer.
fn resolves(aliases: &BTreeMap<String, &Type>, name: &str) -> bool {
    match aliases.get(name) {
        Some(ty @ Type::Path(_)) => base(ty).is_some_and(|next| next != name && resolves(aliases, &next)),
        Some(_) => false,
        None => INTEGERS.contains(&name),
    }
}

/// Whether a field's name is one that `anon_fields_prefix` makes.
fn is_prefix(field: &str) -> bool {
    field.strip_prefix('u').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
}

fn c_name(field: &str) -> &str {
    let field = field.strip_prefix("r#").unwrap_or(field);
    field.strip_suffix('_').filter(|stem| KEYWORDS.contains(stem)).unwrap_or(field)
}
