//! The test programs of the workspace: built by Cargo, run by us, because some of them run elsewhere.

use crate::cargo;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What begins the names of the test targets that need an RDMA device.
const DEVICE_PREFIX: &str = "vm_";

/// All that was built.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    /// Where the examples are, if there are any.
    pub(super) examples: Option<PathBuf>,
}

/// A test program.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// What to call it: package and target.
    pub(super) name: String,
    /// The target's name alone.
    target: String,
    pub(super) file: PathBuf,
    /// The folder of its package, where it runs.
    pub(super) folder: PathBuf,
    package: String,
    source: PathBuf,
}

/// How a program's source wants to be run on a device: lines `// xtask: KEY=VALUE…`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    /// How long it may take.
    pub(super) timeout: Duration,
    /// Kernels to run on too, each with a filter for the tests' names.
    pub(super) kernels: Vec<(String, Option<String>)>,
}

/// Builds everything that `cargo test` runs, and the examples.
pub(super) fn build() -> Result<Built> {
    let mut built = Built::default();
    let messages = cargo::messages(&["test", "--workspace", "--all-features", "--no-run"])?;
    messages.iter().for_each(|message| built.add(message));
    // Cargo reports in the order in which it happened to finish.
    built.programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(built)
}

impl Built {
    /// Takes a program or example from one of Cargo's messages.
    fn add(&mut self, message: &Value) {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let (Some("compiler-artifact"), Some(file)) = (text("/reason"), text("/executable")) else { return };
        let (Some(target), Some(kind)) = (text("/target/name"), text("/target/kind/0")) else { return };
        if message.pointer("/profile/test").and_then(Value::as_bool) != Some(true) {
            if kind == "example" {
                self.examples = Path::new(file).parent().map(Path::to_path_buf);
            }
            return;
        }
        let folder =
            text("/manifest_path").and_then(|path| Path::new(path).parent()).unwrap_or(Path::new("."));
        let package = text("/package_id").map_or(target, package_name).to_owned();
        let what = match kind {
            "test" => target.to_owned(),
            "bin" => format!("{target} (program)"),
            "example" | "bench" => format!("{target} ({kind})"),
            _ => "(library)".to_owned(),
        };
        self.programs.push(Program {
            name: format!("{package} {what}"),
            target: target.to_owned(),
            file: file.into(),
            folder: folder.to_owned(),
            package,
            source: text("/target/src_path").unwrap_or_default().into(),
        });
    }
}

impl Program {
    /// Whether it needs an RDMA device.
    pub(super) fn needs_device(&self) -> bool {
        self.target.starts_with(DEVICE_PREFIX)
    }

    /// Runs it as Cargo would.
    pub(super) fn command(&self) -> Command {
        let mut command = cargo::bare(&self.file);
        command.current_dir(&self.folder).envs(self.environment());
        command
    }

    /// What Cargo would set when running it.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let manifest = self.folder.join("Cargo.toml");
        vec![
            ("CARGO_MANIFEST_DIR".into(), self.folder.clone().into()),
            ("CARGO_MANIFEST_PATH".into(), manifest.into()),
            ("CARGO_PKG_NAME".into(), self.package.clone().into()),
        ]
    }

    pub(super) fn wishes(&self) -> Result<Wishes> {
        let source = fs::read_to_string(&self.source)
            .with_context(|| format!("cannot read {}", self.source.display()))?;
        wishes(&source).with_context(|| format!("in {}", self.source.display()))
    }
}

/// The package of an id such as `path+file:///x/ibverbs-sys#ibv-sys@0.1.0` or `path+file:///x/xtask#0.0.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

fn wishes(source: &str) -> Result<Wishes> {
    let mut wishes = Wishes { timeout: Duration::from_secs(300), kernels: Vec::new() };
    for line in source.lines().filter_map(|line| line.strip_prefix("// xtask: ")) {
        let (mut kernel, mut filter) = (None, None);
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some(("timeout", seconds)) => {
                    let seconds = seconds.parse().with_context(|| format!("no number of seconds: {word}"))?;
                    wishes.timeout = Duration::from_secs(seconds);
                }
                Some(("kernel", series)) => kernel = Some(series.to_owned()),
                Some(("filter", name)) => filter = Some(name.to_owned()),
                _ => bail!("`// xtask:` takes timeout=SECONDS and kernel=SERIES [filter=NAME], not {word}"),
            }
        }
        match (kernel, filter) {
            (Some(kernel), filter) => wishes.kernels.push((kernel, filter)),
            (None, Some(_)) => bail!("`// xtask: filter=` needs a kernel= on its line"),
            (None, None) => {}
        }
    }
    Ok(wishes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_in_both_forms_of_id() {
        assert_eq!(package_name("path+file:///x/ibverbs-sys#ibv-sys@0.1.0"), "ibv-sys");
        assert_eq!(package_name("path+file:///x/xtask#0.0.0"), "xtask");
    }

    #[test]
    fn a_source_says_how_it_wants_to_run() {
        let source = "//! Doc.\n// xtask: timeout=60\n// xtask: kernel=6.12 filter=short\n// xtask: kernel=6.6\nfn x() {}\n";
        let expected = Wishes {
            timeout: Duration::from_secs(60),
            kernels: vec![("6.12".into(), Some("short".into())), ("6.6".into(), None)],
        };
        assert_eq!(wishes(source).unwrap(), expected);
        assert_eq!(wishes("").unwrap().timeout, Duration::from_secs(300));
        for wrong in ["// xtask: kernels=6.1", "// xtask: filter=x", "// xtask: timeout=long"] {
            assert!(wishes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_and_examples_are_told_apart() {
        let message = |kind: &str, name: &str, test: bool| {
            let text = format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w#ibv@0.1.0","manifest_path":"/w/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"{name}","src_path":"/w/x.rs"}},"profile":{{"test":{test}}},
                "executable":"/t/examples/{name}"}}"#
            );
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let mut built = Built::default();
        for (kind, name, test) in
            [("lib", "ibv", true), ("test", "vm_rc", true), ("example", "e", false), ("bin", "b", false)]
        {
            built.add(&message(kind, name, test));
        }
        built.add(&serde_json::json!({"reason": "build-finished", "success": true}));
        let names: Vec<_> =
            built.programs.iter().map(|program| (program.name.as_str(), program.needs_device())).collect();
        assert_eq!(names, [("ibv (library)", false), ("ibv vm_rc", true)]);
        assert_eq!(built.examples.as_deref(), Some(Path::new("/t/examples")));
    }
}
