//! The table of transport × state × operation: every legal cell compiles, every illegal one is a compile error whose
//! text says what to do.
//!
//! The test writes one function a cell, has this very file compiled with them (`--cfg cells`), and holds the
//! compiler's messages against the table.

#[cfg(cells)]
include!(env!("IBV_CELLS"));

#[cfg(not(cells))]
mod table {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test's own tools")]

    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use serde_json::Value;

    const TRANSPORTS: [&str; 3] = ["Rc", "Uc", "Ud"];
    const STATES: [&str; 6] = ["Reset", "Init", "Rtr", "Rts", "Sqd", "Error"];

    /// An operation: name, code, where it is legal, and what the compiler shall say elsewhere.
    struct Op {
        name: &'static str,
        code: &'static str,
        transports: &'static [&'static str],
        states: &'static [&'static str],
        wrong_transport: &'static str,
        wrong_state: &'static str,
    }

    const CONNECTED: &[&str] = &["Rc", "Uc"];
    const ALL: &[&str] = &TRANSPORTS;
    const BRING_TO_RTS: &str = "bring it to `Rts` first";

    const fn post(
        name: &'static str,
        code: &'static str,
        transports: &'static [&'static str],
        wrong_transport: &'static str,
    ) -> Op {
        Op { name, code, transports, states: &["Rts"], wrong_transport, wrong_state: BRING_TO_RTS }
    }

    /// A transition, which starts from one state.
    const fn step(
        name: &'static str,
        code: &'static str,
        transports: &'static [&'static str],
        state: &'static [&'static str],
        wrong_transport: &'static str,
    ) -> Op {
        Op {
            name,
            code,
            transports,
            states: state,
            wrong_transport,
            wrong_state: "`qp.reset()?` leads back to `Reset` from every state",
        }
    }

    const ADDRESS: &str = "a UD send needs its destination: `send(..).to(&ah, qpn, qkey)`";
    const NO_ADDRESS: &str = "leave out `.to(..)`";
    const ONLY_RC: &str = "use a `QueuePair<Rc>`";

    const OPS: [Op; 27] = [
        post("send", "qp.post(send(a.slice))", CONNECTED, ADDRESS),
        post("send_inline", "qp.post(send(Inline(b\"x\")).signaled())", CONNECTED, ADDRESS),
        post("send_imm", "qp.post(send_imm(a.slice, 7))", CONNECTED, ADDRESS),
        post("send_to", "qp.post(send(a.slice).to(a.ah, 1, 2))", &["Ud"], NO_ADDRESS),
        post("send_imm_to", "qp.post(send_imm(a.slice, 7).to(a.ah, 1, 2))", &["Ud"], NO_ADDRESS),
        post("write", "qp.post(write(a.slice, a.there))", CONNECTED, "or send the data"),
        post("write_imm", "qp.post(write_imm(a.slice, a.there, 7))", CONNECTED, "or send the data"),
        post("read", "qp.post(read(a.slice, a.there))", &["Rc"], "or let the peer send or write the data"),
        post("cmp_swp", "qp.post(cmp_swp(a.word, a.there_word, 1, 2))", &["Rc"], ONLY_RC),
        post("fetch_add", "qp.post(fetch_add(a.word, a.there_word, 1))", &["Rc"], ONLY_RC),
        post("send_inv", "qp.post(send_inv(a.slice, 7))", &["Rc"], ONLY_RC),
        post("local_inv", "qp.post(a.inv)", CONNECTED, ONLY_RC),
        post("bind_mw", "qp.post(a.bind)", CONNECTED, ONLY_RC),
        post("bind_mw_type_1", "qp.bind_mw(a.bind_1)", CONNECTED, ONLY_RC),
        Op {
            name: "recv",
            code: "qp.post_recv(recv(a.slice))",
            transports: ALL,
            states: &["Init", "Rtr", "Rts", "Sqd", "Error"],
            wrong_transport: "",
            wrong_state: "bring it to `Init` first: `qp.init(..)?`",
        },
        step("init", "qp.init(a.init)", ALL, &["Reset"], ""),
        step("modify_init", "qp.modify_init(a.init_modify)", ALL, &["Init"], ""),
        step("rtr", "qp.rtr(a.rtr)", ALL, &["Init"], ""),
        step(
            "connect",
            "qp.connect(a.connection)",
            CONNECTED,
            &["Init"],
            "UD goes to `Rts` by `qp.activate(psn)?`",
        ),
        step("activate", "qp.activate(1)", &["Ud"], &["Init"], "datagrams need a `QueuePair<Ud>`"),
        step("rts", "qp.rts(a.rts)", ALL, &["Rtr"], ""),
        step("modify", "qp.modify(a.modify)", ALL, &["Rts"], ""),
        step("sqd", "qp.sqd(true)", ALL, &["Rts"], ""),
        step("resume", "qp.resume(*a.modify)", ALL, &["Sqd"], ""),
        step(
            "resume_after_send_error",
            "qp.resume_after_send_error()",
            &["Uc", "Ud"],
            &["Rts"],
            "lead it back by `qp.reset()?` and onwards",
        ),
        step("modify_drained", "qp.modify_drained(a.drained)", ALL, &["Sqd"], ""),
        Op {
            name: "into_error",
            code: "qp.into_error()",
            transports: ALL,
            states: &["Init", "Rtr", "Rts", "Sqd", "Error"],
            wrong_transport: "",
            wrong_state: "drop the queue pair, or bring it to `Init` first",
        },
    ];

    const PRELUDE: &str = "
use ibv::state::{Error, Init, Reset, Rtr, Rts, Sqd};
use ibv::*;

struct Args<'a, T: Transport> {
    slice: MrSlice<'a>,
    word: MrU64<'a>,
    there: RemoteSlice,
    there_word: RemoteU64,
    bind: BindMw<'a>,
    bind_1: BindMw<'a, Type1>,
    inv: LocalInv<'a>,
    ah: &'a AddressHandle<'a>,
    init: T::Init,
    init_modify: &'a T::InitModify,
    rtr: T::Rtr,
    rts: T::Rts,
    modify: &'a T::RtsModify,
    drained: &'a T::SqdModify,
    connection: &'a Connection,
}

fn main() {}
";

    /// Every cell is a function on a line of its own.
    fn program() -> (String, BTreeMap<usize, (&'static Op, &'static str, &'static str)>) {
        let mut text = PRELUDE.to_owned();
        let mut cells = BTreeMap::new();
        for op in &OPS {
            for transport in TRANSPORTS {
                for state in STATES {
                    let Op { name, code, .. } = op;
                    cells.insert(text.lines().count() + 1, (op, transport, state));
                    writeln!(
                        text,
                        "fn {name}_{transport}_{state}<'a>(mut qp: QueuePair<'a, {transport}, {state}>, a: Args<'a, {transport}>) {{ let _ = {code}; }}"
                    )
                    .unwrap();
                }
            }
        }
        (text, cells)
    }

    /// The error messages for each line of the program.
    fn compile(path: &Path) -> BTreeMap<usize, Vec<String>> {
        let output = Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "--package", "ibv", "--test", "cells", "--message-format", "json"])
            .args(["--", "--cfg", "cells", "--emit", "metadata", "-A", "warnings"])
            .env("IBV_CELLS", path)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let mut errors: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let message = &record["message"];
            if record["reason"] != "compiler-message" || message["level"] != "error" {
                continue;
            }
            let Some(span) =
                message["spans"].as_array().unwrap().iter().find(|span| span["is_primary"] == true)
            else {
                continue; // "aborting due to …"
            };
            assert!(
                span["file_name"].as_str().unwrap().ends_with("cells_program.rs"),
                "an error elsewhere: {}",
                message["rendered"]
            );
            let line = usize::try_from(span["line_start"].as_u64().unwrap()).unwrap();
            errors.entry(line).or_default().push(message["rendered"].as_str().unwrap().to_owned());
        }
        assert!(!errors.is_empty(), "nothing was refused: {}", String::from_utf8_lossy(&output.stderr));
        errors
    }

    #[test]
    fn legal_cells_compile_and_illegal_ones_say_what_to_do() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cells_program.rs");
        let (text, cells) = program();
        std::fs::write(&path, &text).unwrap();
        let mut errors = compile(&path);
        let (mut legal, mut illegal, mut wrong) = (0, 0, Vec::new());
        for (line, (op, transport, state)) in &cells {
            let said = errors.remove(line).unwrap_or_default().join("\n");
            let transport_fits = op.transports.contains(transport);
            let state_fits = op.states.contains(state);
            let cell = format!("{} on {transport} in {state}", op.name);
            if transport_fits && state_fits {
                legal += 1;
                if !said.is_empty() {
                    wrong.push(format!("{cell} is legal, but: {said}"));
                }
                continue;
            }
            illegal += 1;
            // where both are wrong, one advice is enough: the next comes after the first was taken
            let advised = (!transport_fits && said.contains(op.wrong_transport))
                || (!state_fits && said.contains(op.wrong_state));
            if said.is_empty() || !advised {
                wrong.push(format!("{cell} is illegal, and the compiler says: {said}"));
            }
        }
        assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(errors.is_empty(), "errors outside the cells: {errors:?}");
        assert_eq!((legal, illegal), (81, 405), "legal and illegal cells");
        println!("{legal} legal cells compile, {illegal} illegal ones are refused with advice");
    }
}
