//! Sizes, alignments, offsets and values: what Rust has against what the C compiler says of the same headers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One struct or union. `c` is its C name.
struct Type {
    c: &'static str,
    size: usize,
    align: usize,
    fields: &'static [Field],
}

/// One field, at any depth of unnamed types. `c` is the path from the outermost type, as C writes it.
struct Field {
    c: &'static str,
    offset: usize,
    /// A flexible array has none.
    size: Option<usize>,
}

mod tables {
    use std::mem::offset_of;

    use ibv_sys::generated::*;

    use super::{Field, Type};

    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}

/// Constants that are written by hand (`src/compat.rs`), because bindgen cannot read the macros.
#[cfg(feature = "mlx5")]
const BY_HAND: &[(&str, i128)] = &[
    ("MLX5DV_RES_TYPE_QP", ibv_sys::MLX5DV_RES_TYPE_QP as i128),
    ("MLX5DV_RES_TYPE_RWQ", ibv_sys::MLX5DV_RES_TYPE_RWQ as i128),
    ("MLX5DV_RES_TYPE_DBR", ibv_sys::MLX5DV_RES_TYPE_DBR as i128),
    ("MLX5DV_RES_TYPE_SRQ", ibv_sys::MLX5DV_RES_TYPE_SRQ as i128),
    ("MLX5DV_RES_TYPE_CQ", ibv_sys::MLX5DV_RES_TYPE_CQ as i128),
];
#[cfg(not(feature = "mlx5"))]
const BY_HAND: &[(&str, i128)] = &[];

type Facts = BTreeMap<String, i128>;

fn rust() -> Facts {
    let mut facts = Facts::new();
    let mut note =
        |label: String, value: i128| assert!(facts.insert(label.clone(), value).is_none(), "{label}");
    for ty in tables::TYPES {
        note(format!("size {}", ty.c), ty.size as i128);
        note(format!("align {}", ty.c), ty.align as i128);
        for field in ty.fields {
            note(format!("offset {}.{}", ty.c, field.c), field.offset as i128);
            if let Some(size) = field.size {
                note(format!("size {}.{}", ty.c, field.c), size as i128);
            }
        }
    }
    for (name, size, signed) in tables::INTEGERS {
        note(format!("size {name}"), *size as i128);
        note(format!("signed {name}"), i128::from(*signed));
    }
    for (name, value) in tables::CONSTANTS.iter().chain(BY_HAND) {
        note(format!("value {name}"), *value);
    }
    facts
}

fn c() -> Facts {
    let mut body = String::new();
    let mut ask = |label: &str, value: &str| {
        let _ = writeln!(body, "printf(\"{label}\\t%lld\\n\", (long long)({value}));");
    };
    for Type { c, fields, .. } in tables::TYPES {
        ask(&format!("size {c}"), &format!("sizeof({c})"));
        ask(&format!("align {c}"), &format!("_Alignof({c})"));
        for Field { c: path, size, .. } in *fields {
            ask(&format!("offset {c}.{path}"), &format!("offsetof({c}, {path})"));
            if size.is_some() {
                ask(&format!("size {c}.{path}"), &format!("sizeof((({c} *)0)->{path})"));
            }
        }
    }
    for (name, ..) in tables::INTEGERS {
        ask(&format!("size {name}"), &format!("sizeof({name})"));
        ask(&format!("signed {name}"), &format!("({name})-1 < 0"));
    }
    for (name, _) in tables::CONSTANTS.iter().chain(BY_HAND) {
        let _ = writeln!(
            body,
            "if (({name}) < 0) printf(\"value {name}\\t%lld\\n\", (long long)({name})); \
             else printf(\"value {name}\\t%llu\\n\", (unsigned long long)({name}));"
        );
    }
    support::run_c("layout", &body)
        .lines()
        .map(|line| {
            let (label, value) = line.split_once('\t').unwrap();
            (label.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// What differs, for people.
fn differences(rust: &Facts, c: &Facts) -> Vec<String> {
    let mut list = Vec::new();
    for (label, value) in rust {
        match c.get(label) {
            Some(other) if other == value => {}
            Some(other) => list.push(format!("{label}: Rust {value}, C {other}")),
            None => list.push(format!("{label}: Rust {value}, C nothing")),
        }
    }
    assert_eq!(rust.len(), c.len(), "the two sides were asked the same questions");
    list
}

#[test]
fn layout_is_that_of_c() {
    let (rust, c) = (rust(), c());
    assert_eq!(differences(&rust, &c), [""; 0]);

    let count = |kind: &str| rust.keys().filter(|label| label.starts_with(kind)).count();
    println!(
        "rdma-core {}: {} structs and unions, {} field offsets, {} integer types, {} constants",
        option_env!("IBV_SYS_RDMA_CORE").unwrap_or("of unknown version"),
        tables::TYPES.len(),
        count("offset "),
        tables::INTEGERS.len(),
        count("value "),
    );
    // The comparison sees a wrong number of each kind.
    for label in ["offset struct ibv_send_wr.imm_data", "size struct ibv_wc", "value IBV_WC_GENERAL_ERR"] {
        let mut wrong = rust.clone();
        *wrong.get_mut(label).unwrap() += 1;
        assert_eq!(differences(&wrong, &c).len(), 1, "{label}");
    }
}

#[test]
fn all_types_and_constants_of_the_headers_are_bound() {
    // Unnamed types inside of arrays could not be compared.
    assert_eq!(tables::UNVISITED, [""; 0]);

    let bound_types: Vec<&str> =
        tables::TYPES.iter().map(|ty| ty.c.split_once(' ').unwrap().1).chain(enums()).collect();
    let bound_constants: Vec<&str> = tables::CONSTANTS.iter().chain(BY_HAND).map(|(name, _)| *name).collect();
    let mut lost = Vec::new();
    for declared in support::declarations() {
        let types = declared.records.iter().chain(&declared.enums);
        lost.extend(types.filter(|name| !bound_types.contains(&name.as_str())).cloned());
        let constants = declared.enumerators.iter();
        lost.extend(constants.filter(|name| !bound_constants.contains(&name.as_str())).cloned());
    }
    for (name, has_parameters) in support::macros() {
        let known = bound_types.contains(&name.as_str()) || bound_constants.contains(&name.as_str());
        if !has_parameters && !known && support::is_integer_constant("macro", &name) {
            lost.push(name);
        }
    }
    assert_eq!(lost, [""; 0], "declared in the headers, and not in the crate");
}

fn enums() -> impl Iterator<Item = &'static str> {
    tables::INTEGERS.iter().filter_map(|(name, ..)| name.strip_prefix("enum "))
}
