//! The machine code of a program, and what can be reached from a function in it.

use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::process::Command;

/// What must not be reached: parts of symbols.
const FORBIDDEN: [&str; 12] = [
    "panic",
    "unwrap_failed",
    "expect_failed",
    "slice_index_fail",
    "slice_start_index",
    "slice_end_index",
    "_Unwind",
    "handle_alloc_error",
    "__rust_",
    "malloc",
    "calloc",
    "realloc",
];

/// A program's functions.
#[derive(Debug, Default)]
pub(super) struct Program {
    functions: HashMap<String, Function>,
}

/// A function of a program.
#[derive(Debug, Default)]
pub(super) struct Function {
    /// The lines of its instructions, as objdump writes them: `   31f45:\tcall   31f40 <name+0x12>`.
    pub(super) lines: Vec<Line>,
}

/// An instruction.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) address: u64,
    /// Mnemonic and operands.
    pub(super) instruction: String,
    /// The function that it calls, jumps to or loads the address of, by name; [`UNKNOWN`] if that is not to be told.
    pub(super) target: Option<String>,
}

impl Program {
    /// Disassembles a program.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let relocations = objdump(&["--dynamic-reloc"], file)?;
        let code = objdump(&["--disassemble", "--no-show-raw-insn"], file)?;
        Ok(Self::parse(&code, &relocations))
    }

    pub(super) fn parse(code: &str, relocations: &str) -> Self {
        let by_address: BTreeMap<u64, &str> = code.lines().filter_map(heading).collect();
        // a call through the table of addresses: what the loader writes there
        let slots: HashMap<u64, String> = relocations
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (slot, _kind, value) = (words.next()?, words.next()?, words.next()?);
                let target = match value.strip_prefix("*ABS*+") {
                    Some(address) => (*by_address.get(&hex(address)?)?).to_owned(),
                    None => value.to_owned(),
                };
                Some((hex(slot)?, target))
            })
            .collect();
        let mut functions: HashMap<String, Function> = HashMap::new();
        let mut current = String::new();
        for line in code.lines() {
            if let Some((_, name)) = heading(line) {
                current = name.to_owned();
                functions.entry(current.clone()).or_default();
            } else if let Some((address, instruction)) = line.split_once(":\t") {
                let Some(address) = hex(address.trim()) else { continue };
                let target = target(instruction, &slots).filter(|target| *target != current);
                let line = Line { address, instruction: instruction.to_owned(), target };
                functions.entry(current.clone()).or_default().lines.push(line);
            }
        }
        Self { functions }
    }

    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// The functions whose names begin so.
    pub(super) fn with_prefix(&self, prefix: &str) -> Vec<&str> {
        let mut names: Vec<_> = self.functions.keys().map(String::as_str).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    }

    /// The ways from `start` to something forbidden, each as the names on the way; and how many functions were seen.
    pub(super) fn forbidden_from(&self, start: &str) -> (Vec<String>, usize) {
        let mut found = Vec::new();
        let mut seen = HashSet::from([start]);
        let mut queue = VecDeque::from([(start, start.to_owned())]);
        while let Some((name, way)) = queue.pop_front() {
            let lines = self.functions.get(name).into_iter().flat_map(|function| &function.lines);
            for target in lines.filter_map(|line| line.target.as_deref()) {
                if !seen.insert(target) {
                    continue;
                }
                let way = format!("{way} -> {target}");
                if FORBIDDEN.iter().any(|part| target.contains(part)) || target == UNKNOWN {
                    found.push(way);
                } else {
                    queue.push_back((target, way));
                }
            }
        }
        (found, seen.len())
    }
}

fn objdump(arguments: &[&str], file: &Path) -> Result<String> {
    let objdump = crate::program::find("objdump").context("objdump is missing: `cargo xtask setup`")?;
    let output = Command::new(&objdump).args(arguments).arg(file).output().context("cannot run objdump")?;
    if !output.status.success() {
        bail!("objdump: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The id that a linker gave to a file, in hexadecimal digits.
pub(super) fn build_id(file: &Path) -> Result<Option<String>> {
    Ok(build_id_in(&objdump(&["--full-contents", "--section=.note.gnu.build-id"], file)?))
}

/// ` 0270 04000000 14000000 03000000 474e5500  ............GNU.`: sizes, kind and name are 16 bytes, then the id.
fn build_id_in(contents: &str) -> Option<String> {
    let is_data = |line: &&str| line.starts_with(' ');
    let digits =
        |line: &str| line.split("  ").next().map(|data| data.split_whitespace().skip(1).collect::<String>());
    let note: String = contents.lines().filter(is_data).filter_map(digits).collect();
    note.get(32..).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// A call through a slot that no relocation fills.
pub(super) const UNKNOWN: &str = "(an unknown function)";

/// `0000000000031f40 <name>:`.
fn heading(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((hex(address)?, name))
}

/// Where an instruction leads by name: a direct call or jump, or one through a slot at a fixed address, or by a
/// register that is loaded from such a slot. Another indirect one is through the provider's function pointer, and is
/// none of ours.
fn target(instruction: &str, slots: &HashMap<u64, String>) -> Option<String> {
    // `call   31f40 <name+0x12>`, `call   *0x60749(%rip)        # 931c0 <_DYNAMIC+0x6a0>`
    let mnemonic = instruction.split_whitespace().next()?;
    let transfers = mnemonic.starts_with("call")
        || mnemonic.starts_with('j')
        || mnemonic == "bl"
        || mnemonic == "b"
        || mnemonic.starts_with("b.")
        || mnemonic.starts_with("cb")
        || mnemonic.starts_with("tb");
    if let Some((_, slot)) = instruction.split_once("(%rip)").and_then(|(_, rest)| rest.split_once("# ")) {
        let address = slot.split_whitespace().next().and_then(hex)?;
        let name = slots.get(&address).cloned();
        return match transfers {
            true => Some(name.unwrap_or_else(|| UNKNOWN.to_owned())),
            false => name.filter(|_| mnemonic == "mov"),
        };
    }
    if !transfers || instruction.contains('*') {
        return None;
    }
    let (_, name) = instruction.rsplit_once('<')?;
    let name = name.split(['>', '+']).next()?;
    // `name@plt` is the function of that name
    Some(name.split('@').next().unwrap_or(name).to_owned())
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "
x:     file format elf64-x86-64

0000000000001000 <ours_good>:
    1000:\tpush   %rbx
    1001:\tcall   *0xd0(%rax)
    1007:\tjne    1012 <ours_good+0x12>
    1009:\tcall   2000 <cold>
    100e:\tret

0000000000001100 <ours_bad>:
    1100:\tcall   *0x60749(%rip)        # 3000 <_DYNAMIC+0x6a0>
    1106:\tret

0000000000001200 <ours_allocates>:
    1200:\tjmp    *0x60749(%rip)        # 3008 <_DYNAMIC+0x6a8>

0000000000001300 <ours_unknown>:
    1300:\tcall   *0x60749(%rip)        # 4000 <x>

0000000000001400 <ours_by_register>:
    1400:\tmov    0x60749(%rip),%r15        # 3000 <_DYNAMIC+0x6a0>
    1407:\tmov    0x60749(%rip),%r14        # 4000 <x>
    140e:\tcall   *%r15

0000000000002000 <cold>:
    2000:\tcmp    $0x1,%eax
    2003:\tjmp    2000 <cold>

0000000000002100 <middle>:
    2100:\tcall   2200 <_ZN4core9panicking5panic17hE>

0000000000002200 <_ZN4core9panicking5panic17hE>:
    2200:\tret
";

    const RELOCATIONS: &str = "
OFFSET           TYPE              VALUE
0000000000003000 R_X86_64_RELATIVE  *ABS*+0x0000000000002100
0000000000003008 R_X86_64_GLOB_DAT  malloc@GLIBC_2.2.5
";

    #[test]
    fn a_build_id_is_read() {
        let contents = "\n/lib/x.so:     file format elf64-x86-64\n\nContents of section .note.gnu.build-id:\n \
                        0270 04000000 14000000 03000000 474e5500  ............GNU.\n 0280 800c6ca7 68baceb5 92682738 \
                        a03643f1  ..l.h....h'8.6C.\n 0290 1379cbdd                             .y..            \n";
        assert_eq!(build_id_in(contents).unwrap(), "800c6ca768baceb592682738a03643f11379cbdd");
        assert_eq!(build_id_in("\nx:     file format elf64-x86-64\n"), None);
    }

    #[test]
    fn what_can_be_reached_is_found_through_calls_jumps_and_slots() {
        let program = Program::parse(CODE, RELOCATIONS);
        let all = ["ours_allocates", "ours_bad", "ours_by_register", "ours_good", "ours_unknown"];
        assert_eq!(program.with_prefix("ours_"), all);
        assert_eq!(program.forbidden_from("ours_good"), (vec![], 2));
        let (bad, _) = program.forbidden_from("ours_bad");
        assert_eq!(bad, ["ours_bad -> middle -> _ZN4core9panicking5panic17hE"]);
        assert_eq!(
            program.forbidden_from("ours_by_register").0,
            ["ours_by_register -> middle -> _ZN4core9panicking5panic17hE"]
        );
        assert_eq!(program.forbidden_from("ours_allocates").0, ["ours_allocates -> malloc@GLIBC_2.2.5"]);
        assert_eq!(program.forbidden_from("ours_unknown").0.len(), 1);
    }
}
