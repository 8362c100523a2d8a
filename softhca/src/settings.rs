//! The settings of a program that knows nothing of this library: the environment variables `SOFTHCA…`.

use crate::config::{Config, DEFAULT_FABRIC, Link, LogTarget, MAX_DEVICES, Mode};
use crate::fault::Faults;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::str::FromStr;

/// All variables.
const NAMES: [&str; 10] = [
    "SOFTHCA",
    "SOFTHCA_MODE",
    "SOFTHCA_LINK",
    "SOFTHCA_DEVICES",
    "SOFTHCA_MTU",
    "SOFTHCA_FABRIC",
    "SOFTHCA_FAULTS",
    "SOFTHCA_LOG",
    "SOFTHCA_SCATTER",
    "SOFTHCA_HOST_DEVICES",
];

/// Whether the device is to start by itself, as it does in a library that was preloaded. (The other settings are no
/// business of a program that only links the crate.)
pub(crate) fn wanted(preloaded: bool) -> Result<bool, String> {
    let only = std::env::vars_os().filter(|(name, _)| name == "SOFTHCA");
    Settings::from_vars(only)?.switch("SOFTHCA", preloaded)
}

/// The variables that are set, and not to nothing.
#[derive(Debug)]
pub(crate) struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    fn from_vars(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        for (name, value) in vars {
            let Some(name) = name.to_str().filter(|n| *n == "SOFTHCA" || n.starts_with("SOFTHCA_")) else {
                continue;
            };
            let Some(known) = NAMES.into_iter().find(|n| *n == name) else {
                return Err(match nearest(name) {
                    Some(near) => format!("{name}: no such setting; did you mean {near}?"),
                    None => format!("{name}: no such setting; there are {}", NAMES.join(", ")),
                });
            };
            let value =
                value.into_string().map_err(|v| format!("{name}={}: not UTF-8", v.to_string_lossy()))?;
            if !value.is_empty() {
                found.insert(known, value);
            }
        }
        Ok(Self(found))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value that stands for what `name` is set to.
    fn one_of<T: Copy>(&self, name: &str, unset: T, words: &[(&str, T)]) -> Result<T, String> {
        let Some(text) = self.text(name) else { return Ok(unset) };
        match words.iter().find(|(w, _)| *w == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let words: Vec<_> = words.iter().map(|(w, _)| *w).collect();
                Err(format!("{name}={text}: not one of {}", words.join(", ")))
            }
        }
    }

    fn switch(&self, name: &str, unset: bool) -> Result<bool, String> {
        self.one_of(name, unset, &[("0", false), ("1", true)])
    }

    pub(crate) fn config(&self) -> Result<Config, String> {
        let modes = [
            ("pump", Mode::Pump),
            ("thread", Mode::Thread),
            ("manual", Mode::Manual),
            ("trap", Mode::PumpTrap),
        ];
        let mode = self.one_of("SOFTHCA_MODE", Mode::Pump, &modes)?;
        let links = [("ib", Link::InfiniBand), ("roce", Link::RoCE)];
        let link = self.one_of("SOFTHCA_LINK", Link::InfiniBand, &links)?;
        let devices = self.text("SOFTHCA_DEVICES").map_or(Ok(1), |text| {
            let n = usize::from_str(text).ok().filter(|n| (1..=MAX_DEVICES).contains(n));
            n.ok_or_else(|| format!("SOFTHCA_DEVICES={text}: not a number from 1 to {MAX_DEVICES}"))
        })?;
        let mtus = [("256", 256), ("512", 512), ("1024", 1024), ("2048", 2048), ("4096", 4096)];
        let mtu = self.one_of("SOFTHCA_MTU", 4096, &mtus)?;

        let mut config = Config::new().mode(mode).devices(devices, link);
        for d in &mut config.devices {
            d.mtu = mtu;
        }
        config.fabric = match self.text("SOFTHCA_FABRIC") {
            None => Some(DEFAULT_FABRIC.to_owned()),
            Some("none") => None,
            Some(name) => Some(name.to_owned()),
        };
        config.faults = self.text("SOFTHCA_FAULTS").unwrap_or_default().to_owned();
        Faults::parse(&config.faults).map_err(|e| format!("SOFTHCA_FAULTS: {e}"))?;
        config.host_devices = self.switch("SOFTHCA_HOST_DEVICES", false)?;
        config.no_scatter_to_cqe = !self.switch("SOFTHCA_SCATTER", true)?;
        config.log = match self.text("SOFTHCA_LOG") {
            None | Some("0") => LogTarget::Off,
            Some("1") => LogTarget::Stderr,
            Some(file) => LogTarget::File(file.to_owned()),
        };
        // The one thing that is left to be wrong.
        config.complete().map_err(|e| format!("SOFTHCA_FABRIC: {e}"))
    }
}

impl Config {
    /// Reads the environment: `SOFTHCA_MODE` (`pump`, `thread`, `manual`, `trap`), `SOFTHCA_LINK` (`ib`, `roce`),
    /// `SOFTHCA_DEVICES` (1 to 8), `SOFTHCA_MTU` (256, 512, 1024, 2048 or 4096 bytes), `SOFTHCA_FABRIC` (a name, or
    /// `none`), `SOFTHCA_FAULTS`, `SOFTHCA_LOG` (`0`, `1` or a file), `SOFTHCA_SCATTER` and `SOFTHCA_HOST_DEVICES`
    /// (`0`, `1`). What is unset or empty has its default: [`Mode::Pump`], one InfiniBand device, and the fabric
    /// `default`.
    ///
    /// # Errors
    /// A description of the first value that can't be understood, or of a variable `SOFTHCA_…` that doesn't exist,
    /// which says what is allowed.
    ///
    /// # Examples
    /// ```
    /// let config = softhca::Config::from_env()?;
    /// assert!(config.mode.is_real_time());
    /// # Ok::<(), String>(())
    /// ```
    pub fn from_env() -> Result<Self, String> {
        Settings::from_vars(std::env::vars_os())?.config()
    }
}

/// The variable that somebody may have meant by `name`.
fn nearest(name: &str) -> Option<&'static str> {
    const FAR: usize = 3;
    NAMES.into_iter().map(|n| (distance(n, name), n)).min().filter(|(d, _)| *d <= FAR).map(|(_, n)| n)
}

/// How many letters must be changed, put in or left out to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let here = (diagonal + usize::from(x != y)).min(*above + 1).min(left + 1);
            diagonal = std::mem::replace(above, here);
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn config(vars: &[(&str, &str)]) -> Result<Config, String> {
        Settings::from_vars(vars.iter().map(|(n, v)| ((*n).into(), (*v).into())))?.config()
    }

    #[test]
    fn nothing_is_the_default() {
        let empty: Vec<_> = NAMES.iter().map(|n| (*n, "")).collect();
        let c = config(&empty).unwrap();
        assert_eq!(c, config(&[("PATH", "x"), ("SOFTHCAT", "x")]).unwrap());
        assert_eq!((c.mode, c.devices.len(), c.fabric.as_deref()), (Mode::Pump, 1, Some("default")));
        assert!(!c.host_devices && !c.no_scatter_to_cqe && c.log == LogTarget::Off);
        let s = Settings::from_vars([("SOFTHCA".into(), OsString::new())].into_iter()).unwrap();
        assert_eq!((s.switch("SOFTHCA", true), s.switch("SOFTHCA", false)), (Ok(true), Ok(false)));
    }

    #[test]
    fn what_is_allowed_is_understood() {
        let c = config(&[
            ("SOFTHCA_MODE", "trap"),
            ("SOFTHCA_LINK", "roce"),
            ("SOFTHCA_DEVICES", "8"),
            ("SOFTHCA_MTU", "256"),
            ("SOFTHCA_FABRIC", "none"),
            ("SOFTHCA_FAULTS", "drop:1"),
            ("SOFTHCA_LOG", "/tmp/log"),
            ("SOFTHCA_SCATTER", "0"),
            ("SOFTHCA_HOST_DEVICES", "1"),
        ])
        .unwrap();
        assert_eq!((c.mode, c.devices.len(), c.fabric.as_deref()), (Mode::PumpTrap, 8, None));
        assert!(c.devices.iter().all(|d| d.link == Link::RoCE && d.mtu == 256));
        assert!(c.host_devices && c.no_scatter_to_cqe && c.log == LogTarget::File("/tmp/log".into()));
        assert_eq!(config(&[("SOFTHCA_FABRIC", "a-b_c.1")]).unwrap().fabric.as_deref(), Some("a-b_c.1"));
    }

    #[test]
    fn what_is_wrong_is_refused_with_what_is_allowed() {
        for (name, value, says) in [
            ("SOFTHCA_MODE", "Pump", "SOFTHCA_MODE=Pump: not one of pump, thread, manual, trap"),
            ("SOFTHCA_LINK", "eth", "not one of ib, roce"),
            ("SOFTHCA_DEVICES", "0", "SOFTHCA_DEVICES=0: not a number from 1 to 8"),
            ("SOFTHCA_DEVICES", "9", "from 1 to 8"),
            ("SOFTHCA_DEVICES", "two", "from 1 to 8"),
            ("SOFTHCA_MTU", "0", "SOFTHCA_MTU=0: not one of 256, 512, 1024, 2048, 4096"),
            ("SOFTHCA_MTU", "1500", "not one of 256"),
            ("SOFTHCA_FABRIC", "a/b", "1 to 100 of the letters"),
            ("SOFTHCA_FABRIC", &"x".repeat(101), "1 to 100 of the letters"),
            ("SOFTHCA_SCATTER", "no", "SOFTHCA_SCATTER=no: not one of 0, 1"),
            ("SOFTHCA_HOST_DEVICES", "yes", "not one of 0, 1"),
            ("SOFTHCA_FAULTS", "loss:1000001", "loss:1000001"),
            ("SOFTHCA_FABRICS", "x", "did you mean SOFTHCA_FABRIC?"),
            ("SOFTHCA_DEVICE", "2", "did you mean SOFTHCA_DEVICES?"),
            ("SOFTHCA_MOD", "", "did you mean SOFTHCA_MODE?"),
            ("SOFTHCA_SOMETHING_ELSE", "1", "there are SOFTHCA, SOFTHCA_MODE, "),
        ] {
            let e = config(&[(name, value)]).unwrap_err();
            assert!(e.contains(says), "{name}={value}: {e}");
        }
        let raw = [("SOFTHCA_FABRIC".into(), OsString::from_vec(vec![b'a', 0xff]))];
        assert!(Settings::from_vars(raw.into_iter()).unwrap_err().contains("not UTF-8"));
        let on = Settings::from_vars([("SOFTHCA".into(), "yes".into())].into_iter()).unwrap();
        assert!(on.switch("SOFTHCA", true).unwrap_err().contains("SOFTHCA=yes: not one of 0, 1"));
    }
}
