//! Reads the headers' macros with the C preprocessor.
//!
//! bindgen drops a macro that is only another name for an enumerator, a type or a function, and rdma-core has
//! about a hundred of them (`verbs_api.h` and `mlx5_api.h` give the kernel's names to the user in this way).

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::Plan;
use crate::locate::Features;
use crate::message::missing;

/// The headers whose content is bound. A type of another header comes along only if one of these uses it.
const VERBS: [&str; 3] = ["infiniband/verbs.h", "infiniband/verbs_api.h", "infiniband/ib_user_ioctl_verbs.h"];
const MLX5: [&str; 4] = [
    "infiniband/mlx5dv.h",
    "infiniband/mlx5_api.h",
    "infiniband/mlx5_user_ioctl_verbs.h",
    "infiniband/tm_types.h",
];
const RDMACM: [&str; 3] = ["rdma/rdma_cma.h", "rdma/rdma_verbs.h", "infiniband/sa.h"];

/// All of them; files that the features don't include simply do not appear.
pub(crate) fn headers() -> impl Iterator<Item = &'static str> {
    VERBS.into_iter().chain(MLX5).chain(RDMACM)
}

/// A macro with a body.
pub(crate) struct Macro {
    pub(crate) name: String,
    /// Of a macro with parameters: these, as they are written between the parentheses.
    pub(crate) parameters: Option<String>,
    pub(crate) body: String,
}

/// What the bound headers define by `#define NAME BODY`.
pub(crate) fn macros(plan: &Plan, features: Features) -> Result<Vec<Macro>, String> {
    let mut build = cc::Build::new();
    build.cargo_metadata(false).cargo_warnings(false).includes(&plan.include).warnings(false);
    for name in &plan.define {
        build.define(name, None);
    }
    let compiler =
        build.try_get_compiler().map_err(|error| missing(&format!("there is no C compiler ({error}).")))?;
    let output = compiler
        .to_command()
        .args(["-E", "-dD"])
        .arg(&plan.wrapper)
        .output()
        .map_err(|error| missing(&format!("the C compiler cannot be run ({error}).")))?;
    if !output.status.success() {
        let mut text = "the headers cannot be read; the C compiler says:".to_owned();
        for line in String::from_utf8_lossy(&output.stderr).lines().take(6) {
            let _ = write!(text, "\n    {line}");
        }
        return Err(missing(&text));
    }
    // Kept so that the tests compile their C side in the same way.
    let mut flags = String::new();
    for folder in &plan.include {
        let _ = writeln!(flags, "-I{}", folder.display());
    }
    for name in features.defines() {
        let _ = writeln!(flags, "-D{name}");
    }
    crate::write(&plan.out.join("cflags"), &flags)?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Follows the line markers (`# 12 "file.h" 2`), and takes the `#define` lines of the bound headers.
fn parse(text: &str) -> Vec<Macro> {
    let mut ours = false;
    let mut seen = HashSet::new();
    let mut list = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            if let Some(path) = rest.split('"').nth(1) {
                ours = headers().any(|header| path.ends_with(header));
            }
        } else if let Some(item) = line.strip_prefix("#define ").filter(|_| ours).and_then(define) {
            if seen.insert(item.name.clone()) {
                list.push(item);
            }
        }
    }
    list
}

/// What follows `#define `. C has parameters only where the parenthesis touches the name.
fn define(text: &str) -> Option<Macro> {
    let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())?;
    let (name, rest) = text.split_at(end);
    let (parameters, body) = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map(|(parameters, body)| (Some(parameters.to_owned()), body))?,
        None => (None, rest),
    };
    let body = body.trim();
    (!body.is_empty()).then(|| Macro { name: name.to_owned(), parameters, body: body.to_owned() })
}
