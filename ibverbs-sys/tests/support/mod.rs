//! The C compiler, and a reader of C declarations that owes nothing to libclang.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The files whose declarations the crate binds.
const HEADERS: [&str; 10] = [
    "infiniband/verbs.h",
    "infiniband/verbs_api.h",
    "infiniband/ib_user_ioctl_verbs.h",
    "infiniband/mlx5dv.h",
    "infiniband/mlx5_api.h",
    "infiniband/mlx5_user_ioctl_verbs.h",
    "infiniband/tm_types.h",
    "infiniband/sa.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
];

/// The flags that the bindings were made with.
fn flags() -> Vec<String> {
    include_str!(concat!(env!("OUT_DIR"), "/cflags")).lines().map(str::to_owned).collect()
}

fn wrapper() -> String {
    format!("{}/wrapper.h", env!("CARGO_MANIFEST_DIR"))
}

fn compiler() -> Command {
    let mut command = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(flags()).arg("-w");
    command
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Compiles and runs a program that includes the headers; `main_body` is the body of `main`. Returns its output.
pub(crate) fn run_c(name: &str, main_body: &str) -> String {
    let source = scratch(&format!("{name}.c"));
    let program = scratch(name);
    let text = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"{}\"\nint main(void) {{\n{main_body}\nreturn 0;\n}}\n",
        wrapper()
    );
    fs::write(&source, text).unwrap();
    let output = compiler().args(["-x", "c"]).arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    let _ = fs::remove_file(source);
    let _ = fs::remove_file(program);
    String::from_utf8(output.stdout).unwrap()
}

/// Whether C takes the text as an integer constant expression.
pub(crate) fn is_integer_constant(name: &str, text: &str) -> bool {
    let source = scratch(&format!("{name}.c"));
    fs::write(&source, format!("#include \"{}\"\nenum {{ ibv_sys_probe = ({text}) }};\n", wrapper()))
        .unwrap();
    let output = compiler().args(["-fsyntax-only", "-x", "c"]).arg(&source).output().unwrap();
    let _ = fs::remove_file(source);
    output.status.success()
}

/// The preprocessor's output for the bound headers, as (header, text).
fn preprocessed(arguments: &[&str]) -> Vec<(&'static str, String)> {
    let output = compiler().arg("-E").args(arguments).arg(wrapper()).output().unwrap();
    assert!(output.status.success());
    let mut parts: Vec<(&'static str, String)> = HEADERS.map(|header| (header, String::new())).to_vec();
    let mut current = None;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let path = rest.split('"').nth(1).unwrap_or("");
            current = HEADERS.iter().position(|header| path.ends_with(header));
        } else if let Some(part) = current {
            parts[part].1.push_str(line);
            parts[part].1.push('\n');
        }
    }
    parts
}

/// Macros with a body: (name, has parameters).
pub(crate) fn macros() -> Vec<(String, bool)> {
    let mut list = Vec::new();
    for (_, text) in preprocessed(&["-dD"]) {
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("#define ") else { continue };
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            if !rest[end..].trim().is_empty() {
                list.push((rest[..end].to_owned(), rest[end..].starts_with('(')));
            }
        }
    }
    list.sort();
    list.dedup();
    list
}

/// What one header declares.
pub(crate) struct Declarations {
    pub(crate) header: &'static str,
    /// (name, whether static inline)
    pub(crate) functions: Vec<(String, bool)>,
    /// Names of structs and unions with a body.
    pub(crate) records: Vec<String>,
    /// Names of enums with a body.
    pub(crate) enums: Vec<String>,
    pub(crate) enumerators: Vec<String>,
}

/// What the bound headers declare, as written there.
pub(crate) fn declarations() -> Vec<Declarations> {
    preprocessed(&[]).into_iter().map(|(header, text)| declared(header, &text)).collect()
}

fn declared(header: &'static str, text: &str) -> Declarations {
    let tokens = without_attributes(tokens(text));
    let mut found =
        Declarations { header, functions: vec![], records: vec![], enums: vec![], enumerators: vec![] };
    let mut start = 0;
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                let end = matching(&tokens, at);
                match function(&tokens[start..at]) {
                    Some(name) => {
                        note_function(&mut found, name);
                        start = end + 1;
                    }
                    None => types(&mut found, &tokens[start..=end]),
                }
                at = end;
            }
            ";" => {
                let declaration = &tokens[start..at];
                if let Some((name, _)) = function(declaration) {
                    note_function(&mut found, (name, false));
                }
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn note_function(found: &mut Declarations, (name, inline): (String, bool)) {
    // A function may be declared before it is defined.
    match found.functions.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 |= inline,
        None => found.functions.push((name, inline)),
    }
}

/// The function that these tokens declare: the name before the first parenthesis outside of braces.
fn function(declaration: &[String]) -> Option<(String, bool)> {
    if declaration.iter().any(|token| token == "typedef" || token == "{" || token == "=") {
        return None;
    }
    let open = declaration.iter().position(|token| token == "(")?;
    let name = declaration.get(open.checked_sub(1)?)?;
    let is_name = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
    (is_name && name != "_Static_assert")
        .then(|| (name.clone(), declaration.iter().any(|token| token == "inline" || token == "__inline__")))
}

/// Notes the types in a type's declaration, at any depth. The tokens end with the body's `}`.
fn types(found: &mut Declarations, tokens: &[String]) {
    for at in 0..tokens.len() {
        let kind = tokens[at].as_str();
        if !["struct", "union", "enum"].contains(&kind) {
            continue;
        }
        let name = tokens.get(at + 1).filter(|name| *name != "{");
        let open = at + 1 + usize::from(name.is_some());
        if tokens.get(open).is_none_or(|token| token != "{") {
            continue;
        }
        if kind != "enum" {
            found.records.extend(name.cloned());
            continue;
        }
        found.enums.extend(name.cloned());
        let mut expected = true;
        let mut depth = 0;
        for token in &tokens[open + 1..matching(tokens, open)] {
            match token.as_str() {
                "(" => depth += 1,
                ")" => depth -= 1,
                "," if depth == 0 => expected = true,
                name if expected => {
                    found.enumerators.push(name.to_owned());
                    expected = false;
                }
                _ => {}
            }
        }
    }
}

/// The place of the `}` or `)` that closes what opens at `open`.
fn matching(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" | "(" => depth += 1,
            "}" | ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("the preprocessor's output ends inside of braces")
}

fn without_attributes(tokens: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "__attribute__" | "__asm__" | "__typeof__" => at = matching(&tokens, at + 1),
            "__extension__" => {}
            _ => kept.push(tokens[at].clone()),
        }
        at += 1;
    }
    kept
}

fn tokens(text: &str) -> Vec<String> {
    let mut list = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if first == '"' {
            1 + closing_quote(&rest[1..])
        } else if first == '_' || first.is_ascii_alphanumeric() {
            rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            list.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    list
}

/// The length of a string's text with its closing quote.
fn closing_quote(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}
