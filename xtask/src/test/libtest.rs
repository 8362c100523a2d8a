//! Reading what Rust's test programs print.

/// What a test program reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) passed: u32,
    /// The names of the tests that failed.
    pub(super) failed: Vec<String>,
    /// The names of the tests that did not run, with the reason where one is given.
    pub(super) skipped: Vec<String>,
}

/// What a test prints on standard error, past the harness's capture, when it lacks something; test and reason follow.
const SKIP_MARK: &str = "ibv-skip: ";

/// Reads the output of a test program that ended as `end` says: Ok, or how it failed.
///
/// A program without Rust's harness counts as one test.
pub(super) fn read(target: &str, out: &str, err: &str, end: Result<(), String>) -> Report {
    let mut suites = Suites::default();
    out.lines().for_each(|line| suites.read(line));
    let finished = suites.begun == suites.ended;
    let open = suites.open.take().map_or_else(String::new, |test| format!(" (in {test})"));
    let mut report = suites.report();
    for line in out.lines().chain(err.lines()) {
        if let Some((_, test)) = line.split_once(SKIP_MARK) {
            // Such a test returns early, which the harness takes for success.
            report.passed = report.passed.saturating_sub(1);
            report.skipped.push(test.to_owned());
        }
    }
    match end {
        Ok(()) if suites.begun == 0 => report.passed += 1,
        Ok(()) if !finished => report.failed.push(format!("{target}: ended before its tests did{open}")),
        // A failed test makes the program fail too.
        Err(_) if finished && !report.failed.is_empty() => {}
        Err(how) => report.failed.push(format!("{target}: {how}{open}")),
        Ok(()) => {}
    }
    report
}

/// The suites of one program's output; doctests have one for each crate.
#[derive(Default)]
struct Suites {
    begun: u32,
    ended: u32,
    /// Of the suites that ended; exact, as tests can garble the lines before.
    passed: u32,
    failed: usize,
    /// Verdicts since a suite began.
    ok: u32,
    failures: Vec<String>,
    ignored: Vec<String>,
    in_list_of_failures: bool,
    /// The test that has begun but has no verdict yet.
    open: Option<String>,
}

impl Suites {
    fn read(&mut self, line: &str) {
        let name = line.strip_prefix("    ").filter(|_| self.in_list_of_failures);
        self.in_list_of_failures = line == "failures:" || name.is_some();
        if let Some(name) = name {
            self.fails(name);
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            self.open = None;
            match (verdict, verdict.strip_prefix("ignored")) {
                (_, Some(reason)) => self.ignored.push(format!("{name}: ignored{reason}")),
                ("ok", _) => self.ok += 1,
                ("FAILED", _) => self.fails(name),
                _ => self.open = Some(name.to_owned()),
            }
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.ended += 1;
            self.ok = 0;
            self.open = None;
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed") as usize;
        } else if is_suite(line) {
            self.begun += 1;
        }
    }

    fn fails(&mut self, name: &str) {
        if !self.failures.iter().any(|known| known == name) {
            self.failures.push(name.to_owned());
        }
    }

    fn report(&mut self) -> Report {
        let mut failed = std::mem::take(&mut self.failures);
        // Two crates may have a failure of the same name.
        let unnamed = self.failed.saturating_sub(failed.len());
        failed.extend((0..unnamed).map(|_| "one more, see above".to_owned()));
        Report { passed: self.passed + self.ok, failed, skipped: std::mem::take(&mut self.ignored) }
    }
}

/// The number before `what` in `ok. 2 passed; 1 failed; …`.
fn count(counts: &str, what: &str) -> u32 {
    let mut words = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if words.peek() == Some(&what) {
            return word.parse().unwrap_or(0);
        }
    }
    0
}

/// `running 3 tests`.
fn is_suite(line: &str) -> bool {
    let count = line
        .strip_prefix("running ")
        .and_then(|rest| rest.strip_suffix(" tests").or(rest.strip_suffix(" test")));
    count.is_some_and(|count| count.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    const MIXED: &str = "
running 5 tests
test a::one ... ok
test a::two - should panic ... ok
test b ... ignored, needs a device
test c ... FAILED
test src/lib.rs - X (line 3) ... ignored

failures:

---- c stdout ----
test x ... said the test itself
failures:
    c

test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn verdicts_are_counted_and_named() {
        let report = read("t", MIXED, "", Err("exit status 101".into()));
        assert_eq!(report.passed, 2);
        assert_eq!(report.failed, names(&["c"]));
        assert_eq!(
            report.skipped,
            names(&["b: ignored, needs a device", "src/lib.rs - X (line 3): ignored"])
        );
    }

    #[test]
    fn a_test_that_lacks_its_device_is_no_success() {
        let out = "running 2 tests\ntest a ... ok\ntest b ... ok\n\ntest result: ok. 2 passed; 0 failed\n";
        let report = read("t", out, "ibv-skip: b: no device\n", Ok(()));
        assert_eq!((report.passed, report.skipped), (1, names(&["b: no device"])));
    }

    #[test]
    fn a_crash_is_a_failure_beside_what_passed() {
        let out = "running 2 tests\ntest a ... ok\ntest b ... ";
        let report = read("t", out, "", Err("signal 11".into()));
        assert_eq!((report.passed, report.failed), (1, names(&["t: signal 11 (in b)"])));
        let report = read("t", out, "", Ok(()));
        assert_eq!(report.failed, names(&["t: ended before its tests did (in b)"]));
    }

    #[test]
    fn output_between_name_and_verdict_changes_no_count() {
        let out = "running 2 tests\ntest a ... a child's line\nok\ntest b ... more\nFAILED\n\nfailures:\n\n---- b stdout ----\n\n\
                   failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let report = read("t", out, "", Err("exit status 101".into()));
        assert_eq!((report.passed, report.failed), (1, names(&["b"])));
    }

    #[test]
    fn a_program_without_the_harness_is_one_test() {
        assert_eq!(read("t", "PASSED 12000 tests\n", "", Ok(())).passed, 1);
        assert_eq!(read("t", "", "", Err("status 1".into())).failed, names(&["t: status 1"]));
    }

    #[test]
    fn an_empty_suite_is_no_test() {
        let out = "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(read("t", out, "", Ok(())), Report::default());
    }
}
