//! `devinfo` and `ibv_devinfo` print the same.

use std::process::Command;

use crate::device;
use crate::programs::{Ended, example, run};

fn both(options: &[&str]) -> (Ended, Ended) {
    (run(example("devinfo").args(options)), run(Command::new("ibv_devinfo").args(options)))
}

#[test]
fn short_devinfo_prints_what_the_c_program_does() {
    let Some(device) = device() else { return };
    let name = device.name.as_str();
    for options in [&[][..], &["-d", name], &["-d", name, "-i", "1"], &["-i", "1"], &["-l"], &["--list"]] {
        let (ours, theirs) = both(options);
        let (ours, theirs) = (ours.succeeded(), theirs.succeeded());
        assert!(ours.out.contains(name));
        assert_eq!(ours.out, theirs.out, "{options:?}");
    }
}

#[test]
fn devinfo_says_what_is_wrong() {
    let Some(device) = device() else { return };
    run(example("devinfo").args(["-d", "nope"])).failed_with(&["nope", "there are: ", &device.name]);
    run(example("devinfo").args(["-i", "77"])).failed_with(&["--ib-port 77"]);
    run(example("devinfo").args(["-i", "0"])).failed_with(&["--ib-port 0"]);
    run(example("devinfo").arg("-v")).failed_with(&["--verbose", "ibv_devinfo -v"]);
}
