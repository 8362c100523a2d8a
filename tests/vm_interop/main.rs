//! The example programs against each other and against their C namesakes, and what they make of bad input and of peers
//! that are gone.
// xtask: timeout=600
// xtask: kernel=6.12 filter=short

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../support/programs.rs"]
mod programs;

mod bad_input;
mod bad_peers;
mod dead_peers;
mod devinfo;
mod pairs;

use programs::{example, skip};
use std::process::Command;

/// The device under test, with the options that name it; says so if there is none.
fn device() -> Option<Device> {
    let Some(name) = std::env::var("IBV_TEST_DEVICE").ok().filter(|name| !name.is_empty()) else {
        skip("no device: run `cargo xtask test`, or set IBV_TEST_DEVICE (and IBV_TEST_GID_INDEX on RoCE)");
        return None;
    };
    let mut options = vec!["-d".to_owned(), name.clone()];
    if let Ok(index) = std::env::var("IBV_TEST_GID_INDEX") {
        options.extend(["-g".to_owned(), index]);
    }
    Some(Device { name, options })
}

struct Device {
    name: String,
    options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    C,
}

impl Device {
    /// `rc_pingpong` and the like on this device.
    fn pingpong(&self, transport: &str, language: Language, options: &str) -> Command {
        let mut command = match language {
            Language::Rust => example(&format!("{transport}_pingpong")),
            Language::C => Command::new(format!("ibv_{transport}_pingpong")),
        };
        command.args(&self.options).args(options.split_whitespace());
        command
    }
}
