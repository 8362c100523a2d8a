//! The fences of the direct path, in its x86-64 machine code: on every way through a function, just those that have to
//! be there.
//!
//! A way that posts stores the doorbell record, then one `sfence`, then either lines of 64 bytes to the register, each
//! by four aligned stores of 16 (no other code of the path has such), or one store of 8 and a second `sfence`. No other
//! fence, and no locked instruction, is on any way. What stores are to which memory is not written in machine code; it
//! is known by how they are made, and one that is made in another way than here shows as a way that breaks the rule.

use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeSet, HashMap, HashSet};

use super::assembly::{Line, Program};

/// What begins the names of the functions that are walked.
const PREFIX: &str = "ours_direct_";

/// What polls call now and then, and walks do not go into: what looks for queue pairs that come and go, which takes
/// locks.
const COLD: [&str; 2] = ["poll_slowly", "found_empty"];

/// Where a way stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    /// Nothing was told, or all that was is fenced.
    Idle,
    /// The record is stored.
    Told,
    Fenced,
    /// So many stores of a line's four are done.
    Copying(u8),
    /// Lines are copied: more may follow.
    Copied,
    /// The register is rung by 8 bytes.
    Rung,
}

/// What an instruction is to the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Stores the send queue's doorbell record: 4 bytes that were just made big-endian, in the second word.
    Record,
    /// Stores 16 bytes.
    Unit,
    /// Stores a register of 8 bytes where another one leads: the doorbell, or part of a WQE.
    Word,
    StoreFence,
    OtherFence,
    Locked,
    Plain,
}

/// Where an instruction leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    /// There, or there and on.
    Jump(u64),
    Branch(u64),
    Return,
    /// To a place that is not written here.
    Unknown,
    /// No instruction is run after it.
    End,
}

impl Stage {
    /// The stage after an instruction, or what is wrong with it.
    fn after(self, kind: Kind) -> Result<Self, &'static str> {
        use Kind::{Locked, OtherFence, Plain, Record, StoreFence, Unit, Word};
        use Stage::{Copied, Copying, Fenced, Idle, Rung, Told};
        Ok(match (self, kind) {
            (_, OtherFence) => return Err("a load fence or full fence"),
            (_, Locked) => return Err("a locked instruction"),
            (stage, Plain) | (stage @ (Idle | Copied), Word) => stage,
            (Idle | Copied, Record) => Told,
            (_, Record) => return Err("a doorbell record before the last one is rung for"),
            (Told, StoreFence) => Fenced,
            (Rung, StoreFence) => Idle,
            (Idle, StoreFence) => return Err("an sfence that nothing asks for"),
            (Fenced, StoreFence) => return Err("a second sfence between record and register"),
            (Copying(_) | Copied, StoreFence) => return Err("an sfence after the copy"),
            (Fenced | Copied, Unit) => Copying(1),
            (Copying(3), Unit) => Copied,
            (Copying(units), Unit) => Copying(units + 1),
            (Fenced, Word) => Rung,
            (Told, Unit | Word) => return Err("no sfence between record and register"),
            (Idle, Unit) => return Err("a copy to the register without a record"),
            (Rung, Unit | Word) => return Err("a doorbell that is not flushed"),
            (Copying(_), Word) => return Err("a line that is not copied whole"),
        })
    }

    /// Whether a function may be left so.
    fn is_done(self) -> bool {
        matches!(self, Self::Idle | Self::Copied)
    }
}

impl Kind {
    fn of(line: &Line, before: Option<&Line>) -> Self {
        let (mnemonic, operands) = parts(line);
        let (from, to) = operands.rsplit_once(",").unwrap_or((operands, ""));
        let to_memory = to.ends_with(')') && !to.contains("%rsp");
        let is_big_endian =
            || before.is_some_and(|before| parts(before) == ("bswap", from) && from.starts_with('%'));
        match mnemonic {
            "sfence" => Self::StoreFence,
            "lfence" | "mfence" => Self::OtherFence,
            "lock" => Self::Locked,
            "xchg" if operands.contains('(') => Self::Locked,
            "movaps" | "movdqa" if from.starts_with("%xmm") && to_memory => Self::Unit,
            "mov" if to_memory && is_word(from) && to.starts_with("(%") && !to.contains([',', ' ']) => {
                Self::Word
            }
            "mov" if to_memory && to.starts_with("0x4(%") && is_big_endian() && !is_word(from) => {
                Self::Record
            }
            _ => Self::Plain,
        }
    }
}

/// Whether an operand is a register of 8 bytes.
fn is_word(operand: &str) -> bool {
    operand.strip_prefix("%r").is_some_and(|name| !name.ends_with(['d', 'w', 'b']))
}

impl Flow {
    fn of(line: &Line) -> Self {
        let (mnemonic, operands) = parts(line);
        let to = || u64::from_str_radix(operands.split(' ').next().unwrap_or(""), 16).ok();
        match mnemonic {
            "ret" => Self::Return,
            "ud2" | "hlt" | "int3" => Self::End,
            "jmp" => to().map_or(Self::Unknown, Self::Jump),
            _ if mnemonic.starts_with('j') => to().map_or(Self::Unknown, Self::Branch),
            _ => Self::On,
        }
    }
}

fn parts(line: &Line) -> (&str, &str) {
    let instruction = line.instruction.trim();
    let (mnemonic, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
    (mnemonic, operands.trim())
}

/// The ways through a function and what it calls.
struct Walk<'p> {
    program: &'p Program,
    /// Where a function may end, by where it began.
    exits: HashMap<(&'p str, Stage), BTreeSet<Stage>>,
    /// Where lines were copied and doorbells were rung.
    copies: BTreeSet<u64>,
    doorbells: BTreeSet<u64>,
    wrong: BTreeSet<String>,
}

impl<'p> Walk<'p> {
    fn of(program: &'p Program, name: &'p str) -> Result<Self> {
        let (exits, [copies, doorbells], wrong) = (HashMap::new(), Default::default(), BTreeSet::new());
        let mut walk = Self { program, exits, copies, doorbells, wrong };
        walk.function(name, Stage::Idle)?;
        Ok(walk)
    }

    /// Goes all ways through a function, and returns how they end.
    fn function(&mut self, name: &'p str, entry: Stage) -> Result<BTreeSet<Stage>> {
        if let Some(exits) = self.exits.get(&(name, entry)) {
            return Ok(exits.clone());
        }
        // of a function that calls itself, the inner ways are walked already
        self.exits.insert((name, entry), BTreeSet::new());
        let lines = &self.program.function(name).with_context(|| format!("no function {name}"))?.lines;
        let places: HashMap<u64, usize> =
            lines.iter().enumerate().map(|(at, line)| (line.address, at)).collect();
        let mut exits = BTreeSet::new();
        let (mut seen, mut open) = (HashSet::new(), vec![(0, entry)]);
        while let Some((at, stage)) = open.pop() {
            let Some(line) = lines.get(at) else { continue };
            if !seen.insert((at, stage)) {
                continue;
            }
            let mut stages = BTreeSet::new();
            match stage.after(Kind::of(line, at.checked_sub(1).and_then(|before| lines.get(before)))) {
                Ok(next) => _ = stages.insert(next),
                Err(what) => self.is_wrong(name, line, what),
            }
            match stages.first() {
                Some(Stage::Copied) if stage != Stage::Copied => _ = self.copies.insert(line.address),
                Some(Stage::Rung) if stage != Stage::Rung => _ = self.doorbells.insert(line.address),
                _ => {}
            }
            let flow = Flow::of(line);
            let leaves = match flow {
                Flow::Jump(to) | Flow::Branch(to) => !places.contains_key(&to),
                _ => true,
            };
            if let Some(target) = line.target.as_deref().filter(|_| leaves) {
                stages = self.through(name, line, target, stages)?;
            } else if parts(line).0.starts_with("call") {
                stages.retain(|stage| self.may_leave(name, line, *stage));
            }
            for stage in stages {
                match flow {
                    Flow::On => open.push((at + 1, stage)),
                    Flow::Jump(to) | Flow::Branch(to) => {
                        match places.get(&to) {
                            Some(place) => open.push((*place, stage)),
                            // to another function, which returns for this one
                            None => _ = exits.insert(stage),
                        }
                        if matches!(flow, Flow::Branch(_)) {
                            open.push((at + 1, stage));
                        }
                    }
                    Flow::Return => _ = exits.insert(stage),
                    Flow::Unknown => self.is_wrong(name, line, "a jump to a place that is not written here"),
                    Flow::End => {}
                }
            }
        }
        self.exits.insert((name, entry), exits.clone());
        Ok(exits)
    }

    /// Through another function, which is called or jumped to there, or may be later.
    fn through(
        &mut self,
        name: &str,
        line: &Line,
        target: &'p str,
        stages: BTreeSet<Stage>,
    ) -> Result<BTreeSet<Stage>> {
        let is_loaded = parts(line).0 == "mov";
        if self.program.function(target).is_none() || COLD.iter().any(|cold| target.contains(cold)) {
            return Ok(stages
                .into_iter()
                .filter(|stage| is_loaded || self.may_leave(name, line, *stage))
                .collect());
        }
        let mut exits = BTreeSet::new();
        for stage in stages {
            let ends = self.function(target, stage)?;
            exits.extend(if is_loaded { BTreeSet::from([stage]) } else { ends });
        }
        Ok(exits)
    }

    /// Whether code that is not walked may be run here.
    fn may_leave(&mut self, name: &str, line: &Line, stage: Stage) -> bool {
        if !stage.is_done() {
            self.is_wrong(name, line, "other code between record, fence and register");
        }
        stage.is_done()
    }

    fn is_wrong(&mut self, name: &str, line: &Line, what: &str) {
        self.wrong.insert(format!("{name} at {:x}: {what}: `{}`", line.address, line.instruction));
    }
}

/// Walks the functions of the direct path, prints a line for each, and returns how many are wrong.
pub(super) fn check(program: &Program) -> Result<u32> {
    let names = program.with_prefix(PREFIX);
    ensure!(!names.is_empty(), "no function {PREFIX}* was found in the program");
    let mut wrong = 0;
    for name in names {
        let mut walk = Walk::of(program, name)?;
        for stage in
            walk.exits.get(&(name, Stage::Idle)).into_iter().flatten().filter(|stage| !stage.is_done())
        {
            walk.wrong.insert(format!("{name}: it ends {stage:?}, before its doorbell is rung and flushed"));
        }
        let (copies, doorbells) = (walk.copies.len(), walk.doorbells.len());
        let posts = !name.contains("poll") && !name.contains("recv");
        if posts && doorbells == 0 || !posts && copies + doorbells != 0 {
            walk.wrong.insert(format!(
                "{name}: {copies} copies to the register and {doorbells} doorbells were found"
            ));
        }
        wrong += u32::from(!walk.wrong.is_empty());
        for what in &walk.wrong {
            println!("fences: FAIL {what}");
        }
        if walk.wrong.is_empty() {
            match posts {
                true => println!(
                    "fences: {name}: one sfence on each way to its {copies} copies, two at its {doorbells} doorbells ok"
                ),
                false => println!("fences: {name}: none on any way ok"),
            }
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A post: the record, a fence, then a copy or a doorbell; 8 bytes of the next WQE come after it.
    const POST: &str = "
0000000000001000 <ours_direct_write>:
    1000:\tmov    %rax,(%r10)
    1003:\tbswap  %ebx
    1005:\tmov    %ebx,0x4(%r9)
    1009:\tsfence
    100c:\tjae    1020 <ours_direct_write+0x20>
    100e:\tmov    %r9,0xc8(%rdi)
    1011:\tmov    %r10,(%r11)
    1014:\tsfence
    1017:\tjne    1000 <ours_direct_write>
    1019:\tret
    1020:\tmovaps (%r10),%xmm0
    1023:\tmovaps %xmm0,(%rbx)
    1026:\tmovaps %xmm0,0x10(%rbx)
    1029:\tmovaps %xmm0,0x20(%rbx)
    102c:\tmovaps %xmm0,0x30(%rbx)
    1030:\tjmp    1017 <ours_direct_write+0x17>
";

    /// What is wrong with it, and the copies and doorbells that are found.
    fn walk(code: &str) -> (String, usize, usize) {
        let program = Program::parse(code, "");
        let [name] = program.with_prefix(PREFIX)[..] else { panic!("one function") };
        let walk = Walk::of(&program, name).unwrap();
        let open = walk.exits[&(name, Stage::Idle)].iter().filter(|stage| !stage.is_done());
        let wrong = walk.wrong.iter().cloned().chain(open.map(|stage| format!("it ends {stage:?}")));
        (wrong.collect::<Vec<_>>().join("; "), walk.copies.len(), walk.doorbells.len())
    }

    #[test]
    fn a_post_has_one_fence_for_a_copy_and_two_for_a_doorbell() {
        assert_eq!(walk(POST), (String::new(), 1, 1));
        assert_eq!(check(&Program::parse(POST, "")).unwrap(), 0);
    }

    #[test]
    fn each_way_that_breaks_the_rule_is_found() {
        let nop = "    1009:\tnop";
        for (from, to, says) in [
            ("    1009:\tsfence", nop, "no sfence between record and register"),
            ("    1014:\tsfence", "    1014:\tnop", "it ends Rung"),
            ("    1000:\tmov    %rax,(%r10)", "    1000:\tsfence", "nothing asks for"),
            ("    1000:\tmov    %rax,(%r10)", "    1000:\tlfence", "a load fence"),
            ("    1000:\tmov    %rax,(%r10)", "    1000:\tlock incl (%r10)", "a locked instruction"),
            ("    1000:\tmov    %rax,(%r10)", "    1000:\txchg   %rax,(%r10)", "a locked instruction"),
            ("    100e:\tmov    %r9,0xc8(%rdi)", "    100e:\tsfence", "a second sfence"),
            ("    100e:\tmov    %r9,0xc8(%rdi)", "    100e:\tcall   *%r15", "other code between"),
            (
                "    1030:\tjmp    1017 <ours_direct_write+0x17>",
                "    1030:\tsfence\n    1033:\tret",
                "after the copy",
            ),
            ("    102c:\tmovaps %xmm0,0x30(%rbx)", "    102c:\tnop", "a line that is not copied whole"),
            ("    1005:\tmov    %ebx,0x4(%r9)", "    1005:\tnop", "nothing asks for"),
            ("    1017:\tjne    1000 <ours_direct_write>", "    1017:\tjmp    *%rax", "not written here"),
        ] {
            let code = POST.replace(from, to);
            assert_ne!(code, POST, "{from}");
            assert!(walk(&code).0.contains(says), "{to}: {:?}", walk(&code));
            assert_eq!(check(&Program::parse(&code, "")).unwrap(), 1);
        }
    }

    #[test]
    fn ways_go_through_the_functions_that_are_called() {
        let inner = POST.replace("ours_direct_write", "long");
        let outer = "
0000000000002000 <ours_direct_long>:
    2000:\tcall   1000 <long>
    2005:\tcall   *%rax
    2007:\tjmp    1000 <long>
";
        assert_eq!(walk(&format!("{outer}{inner}")), (String::new(), 1, 1));
        let inner = inner.replace("    1014:\tsfence", "    1014:\tnop");
        assert!(walk(&format!("{outer}{inner}")).0.contains("other code between"));
    }

    #[test]
    fn polls_and_receives_have_none() {
        let poll = POST.replace("ours_direct_write", "ours_direct_poll_1");
        assert_eq!(check(&Program::parse(&poll, "")).unwrap(), 1);
        let bare = "0000000000001000 <ours_direct_recv>:\n    1000:\tmov    %ebx,(%r9)\n    1003:\tret\n";
        assert_eq!(check(&Program::parse(bare, "")).unwrap(), 0);
        let silent = bare.replace("recv", "write");
        assert_eq!(check(&Program::parse(&silent, "")).unwrap(), 1);
    }
}
