//! The loops that are measured beside each other ask the provider for the same.

use ibv_bench_twins::{Row, Use, with_rows};
use nullhca::hca;

struct Compare;

impl Use for Compare {
    type Result = usize;

    fn rows(self, rows: Vec<Row<'_>>) -> usize {
        let mut compared = 0;
        for mut row in rows {
            // completions come without being asked for on the other data path only
            if row.name.starts_with("poll") && row.name != "poll_empty" {
                continue;
            }
            assert!((row.ours)(3), "{}", row.name);
            let mut ours = (hca().take_sends(), hca().take_recvs(), hca().take_wr_calls());
            assert!(row.name == "poll_empty" || ours.0.len().max(ours.1.len()) == 3 || !ours.2.is_empty());
            assert!((row.theirs)(3), "{}", row.name);
            let mut theirs = (hca().take_sends(), hca().take_recvs(), hca().take_wr_calls());
            // C leaves the field of immediate data alone where there is none
            for wr in ours.0.iter_mut().chain(&mut theirs.0).flatten() {
                wr.imm_data = [0; 4];
            }
            assert_eq!(ours, theirs, "{}", row.name);
            compared += 1;
        }
        compared
    }
}

#[test]
fn ours_and_theirs_ask_for_the_same() {
    assert!(with_rows(false, Compare).is_ok_and(|compared| compared >= 11));
}
