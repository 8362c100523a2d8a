//! What can go wrong: cold errors here, hot ones ([`PostError`], [`PollError`], [`WcError`]) where they arise.

use std::error::Error as StdError;
use std::{fmt, io};

use crate::cq::{PollError, WcError};
use crate::mr::RangeError;
use crate::wr::PostError;

/// The result of a cold call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, and what to do about it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libibverbs or the kernel said no.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// No device of that name or GUID.
    #[error("no RDMA device {wanted}; {}", there_are(.available))]
    DeviceNotFound {
        /// What was asked for.
        wanted: String,
        /// The names of the devices that there are.
        available: Vec<String>,
    },
    /// More was asked for than the device, or the object, can give.
    #[error("{what}: asked for {asked}, the limit is {limit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The largest value that would have been accepted.
        limit: u64,
    },
    /// A value outside its range, before anything reached the device.
    #[error("{what} is {value}: {expected}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Two parents of one object belong to different contexts.
    #[error("the {what} belongs to another device context: make both from one `Context`")]
    OtherContext {
        /// The parent that differs from the first one.
        what: &'static str,
    },
    /// The queue pair's queues could overrun the completion queue.
    #[error(
        "the completion queue has room for {free} of its {capacity} entries, the queue pair (or the shared receive queue \
         that it is the first to use) needs {needed}: create it with at least {} entries (`CompletionQueue::entries_for` \
         tells the need, `mlx5::cq_entries` that of a direct queue pair), poll it until it is empty if queue \
         pairs on it were dropped or reset, or overcommit it on purpose with `CompletionQueueBuilder::overcommit`, \
         unless it is direct",
        capacity.saturating_sub(*free).saturating_add(*needed)
    )]
    CqRoom {
        /// Entries that the queue pair's queues can fill.
        needed: u32,
        /// Entries not yet promised to other queue pairs.
        free: u32,
        /// All entries.
        capacity: u32,
    },
    /// The protection domain already holds the other kind of posting.
    #[error(
        "this protection domain holds {held}, which excludes {wanted} for good: use a second protection domain"
    )]
    PostingKind {
        /// What the domain was first used for.
        held: &'static str,
        /// What was asked of it now.
        wanted: &'static str,
    },
    /// A provider's environment switch takes away the locks that make sharing objects between threads sound.
    #[error(
        "the environment variable {variable} removes the provider's locks: unset it, or open the device with \
         `Device::open_unlocked`"
    )]
    Unlocked {
        /// The variable that is set.
        variable: &'static str,
    },
    /// A range outside a region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A post was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Polling failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A request completed in error.
    #[error(transparent)]
    Completion(#[from] WcError),
}

/// What to do without an adapter.
macro_rules! without_adapter {
    () => {
        "without an adapter, `rdma link add rxe0 type rxe netdev NAME` makes a software one, and softhca is one for tests: \
         started by `softhca::Hca::start` before this, or preloaded (`LD_PRELOAD=libsofthca.so`)"
    };
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => concat!("there is none on this machine: is a driver loaded? (", without_adapter!(), ")")
            .to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

/// What it says, since that is what a `main` that returns it prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The errno of the call that failed, if one failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Verb(e) => Some(e.errno),
            Self::Post(e) => e.errno(),
            _ => None,
        }
    }

    pub(crate) fn invalid(what: &'static str, value: impl ToString, expected: &'static str) -> Self {
        Self::Invalid { what, value: value.to_string(), expected }
    }

    /// `asked` is at most `limit`, or the error that says so.
    pub(crate) fn check_limit(
        what: &'static str,
        asked: impl Into<u64>,
        limit: impl Into<u64>,
    ) -> Result<()> {
        let (asked, limit) = (asked.into(), limit.into());
        if asked > limit { Err(Self::Limit { what, asked, limit }) } else { Ok(()) }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(errno) => Self::new(Self::from_raw_os_error(errno).kind(), error),
            None => Self::other(error),
        }
    }
}

/// A verb that failed: which one, with what errno, and what it was asked to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{verb} failed{}: {}{}", self.of(), io::Error::from_raw_os_error(*errno), self.hint_text())]
pub struct VerbError {
    verb: &'static str,
    errno: i32,
    asked: String,
    /// What helps, if who called the verb knows better than its name tells.
    advice: Option<&'static str>,
}

/// What helps if a path to a peer is refused.
pub(crate) const PATH_ADVICE: &str = "RoCE needs a GRH: give the index of a GID (`Context::gid_table`) and the peer's GID, both of \
     one kind (IPv4 or IPv6); and check port and MTU";

impl VerbError {
    pub(crate) fn new(verb: &'static str, errno: i32, asked: impl Into<String>) -> Self {
        Self { verb, errno, asked: asked.into(), advice: None }
    }

    /// With `advice`, if it is that errno.
    pub(crate) fn advise(mut self, errno: i32, advice: Option<&'static str>) -> Self {
        if self.errno == errno {
            self.advice = advice;
        }
        self
    }

    /// The C function.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// The errno that it gave.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// What usually helps against this errno of this verb.
    pub fn hint(&self) -> Option<&'static str> {
        self.advice.or(match (self.verb, self.errno) {
            ("ibv_reg_mr", libc::ENOMEM) => Some(
                "registered memory is locked: raise the limit (`ulimit -l`, RLIMIT_MEMLOCK) or register less",
            ),
            ("ibv_open_device", libc::EACCES | libc::EPERM) => {
                Some("the user needs read and write access to /dev/infiniband/uverbs*")
            }
            ("ibv_get_device_list", libc::ENOSYS) => Some(concat!(
                "the kernel has no RDMA support loaded: `modprobe ib_uverbs`; ",
                without_adapter!()
            )),
            ("ibv_create_ah", libc::EINVAL) => Some(PATH_ADVICE),
            ("ibv_create_qp" | "ibv_create_qp_ex" | "mlx5dv_create_qp", libc::EINVAL) => Some(
                "each size may be within its limit, and all of them more than one queue can hold: ask for fewer \
                 requests outstanding, less inline data or fewer elements",
            ),
            ("ibv_query_port", libc::EINVAL) => Some("ports count from 1 (`DeviceAttr::phys_port_cnt`)"),
            ("ibv_create_ah" | "ibv_modify_qp", libc::ENODATA) => {
                Some("the GID index names an empty entry of the port's table (`Context::gid_table`)")
            }
            ("ibv_modify_qp", libc::ETIMEDOUT) => Some("the peer's address could not be resolved"),
            ("ibv_modify_qp", libc::EPERM) => Some("a Q_Key with its top bit set needs CAP_NET_RAW"),
            ("mmap", libc::ENOMEM) => Some("for huge pages, reserve some first (`sysctl vm.nr_hugepages`)"),
            (_, libc::EOPNOTSUPP | libc::ENOSYS) => Some("this device or its driver does not support it"),
            _ => None,
        })
    }

    fn of(&self) -> String {
        if self.asked.is_empty() { String::new() } else { format!(" ({})", self.asked) }
    }

    fn hint_text(&self) -> String {
        self.hint().map_or_else(String::new, |hint| format!("; {hint}"))
    }
}

/// An error that gives the object back: a transition that was refused, a close that failed, a buffer that could not
/// be registered.
///
/// It converts into [`Error`] and into `Box<dyn std::error::Error>`, so `?` drops the object and passes the reason
/// on, also where the object borrows (which is why it is no `std::error::Error` itself: those want `'static`).
pub struct Refused<T> {
    object: Option<T>,
    error: Error,
}

/// A queue pair's transition that was refused, with the queue pair.
pub type TransitionError<Q> = Refused<Q>;
/// An object that could not be destroyed, with the object.
pub type CloseError<T> = Refused<T>;

impl<T> Refused<T> {
    pub(crate) fn new(object: impl Into<Option<T>>, error: impl Into<Error>) -> Self {
        Self { object: object.into(), error: error.into() }
    }

    /// The reason.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The object, unchanged. `None` only where the text of the call says when it is lost.
    pub fn into_object(self) -> Option<T> {
        self.object
    }

    /// Both.
    pub fn into_parts(self) -> (Option<T>, Error) {
        (self.object, self.error)
    }

    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Refused<U> {
        Refused { object: self.object.map(f), error: self.error }
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> From<Refused<T>> for io::Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

impl<T> From<Refused<T>> for Box<dyn StdError> {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

impl<T> From<Refused<T>> for Box<dyn StdError + Send + Sync> {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_given_where_they_fit() {
        let hint = |verb, errno, asked: &str| VerbError::new(verb, errno, asked).to_string();
        assert!(hint("ibv_create_ah", libc::EINVAL, "").contains("RoCE needs a GRH"));
        // a text that happens to read like another call's is no reason for its advice
        assert!(!hint("ibv_modify_qp", libc::EINVAL, "INIT to RTR, attr_mask 0x1").contains("GRH"));
        let advised =
            VerbError::new("ibv_modify_qp", libc::EINVAL, "").advise(libc::EINVAL, Some(PATH_ADVICE));
        assert!(advised.to_string().contains("RoCE needs a GRH"));
        let other =
            VerbError::new("ibv_modify_qp", libc::ENODATA, "").advise(libc::EINVAL, Some(PATH_ADVICE));
        assert!(!other.to_string().contains("RoCE needs a GRH"));
        assert!(hint("ibv_modify_qp", libc::ENODATA, "INIT to RTR").contains("empty entry"));
        assert!(hint("ibv_reg_mr", libc::ENOMEM, "9 bytes").contains("ulimit -l"));
        for verb in ["ibv_create_qp", "ibv_create_qp_ex", "mlx5dv_create_qp"] {
            assert!(hint(verb, libc::EINVAL, "").contains("less inline data"), "{verb}");
        }
    }
}
