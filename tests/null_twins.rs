//! The loops that are measured beside each other ask the provider for the same.

use ibv_bench_twins::{Loop, Provider, Row, Use, with_rows};
use nullhca::hca;

struct Compare;

impl Use for Compare {
    type Result = Result<usize, ibv::Error>;

    fn rows(self, rows: Vec<Row<'_>>) -> Self::Result {
        let mut compared = 0;
        for mut row in rows {
            // completions come without being asked for on the other data path only
            let is_empty = row.name.ends_with("_empty");
            if row.name.starts_with("poll") && !is_empty {
                continue;
            }
            let asked = |side: &mut Loop<'_>| {
                let arms = || hca().count("ibv_req_notify_cq");
                let before = arms();
                side.run(3, |run| assert!(run(), "{}", row.name)).map(|()| {
                    (hca().take_sends(), hca().take_recvs(), hca().take_wr_calls(), arms() - before)
                })
            };
            let (mut ours, mut theirs) = (asked(&mut row.ours)?, asked(&mut row.theirs)?);
            let requests = ours.0.len().max(ours.1.len()).max(ours.3);
            assert!(is_empty || requests == 3 || !ours.2.is_empty(), "{}", row.name);
            // C leaves the field of immediate data alone where there is none
            for wr in ours.0.iter_mut().chain(&mut theirs.0).flatten() {
                wr.imm_data = [0; 4];
            }
            assert_eq!(ours, theirs, "{}", row.name);
            compared += 1;
        }
        Ok(compared)
    }
}

#[test]
fn ours_and_theirs_ask_for_the_same() {
    let provider = Provider::Nobody { device: "null0", set_completions: |_, _| {} };
    assert!(with_rows(provider, Compare).unwrap().unwrap() >= 17);
}
