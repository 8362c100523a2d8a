//! The table of all objects, and what each [`Hca`](crate::Hca) recorded and shall answer.
//!
//! # Safety
//!
//! An object's memory comes from a box, and is given back exactly once, when it leaves the table.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, PoisonError};

use ibv_sys as sys;

use crate::config::Config;
use crate::notices::{self, Notices};
use crate::record::{Call, Id, Kind, Live, Modify, PostFault, RecvWr, Registration, SendWr, WrCall};

/// An object in the table, by the address of its C struct.
pub(crate) struct Object {
    pub(crate) id: Id,
    /// The [`Hca`](crate::Hca) that it belongs to.
    pub(crate) hca: usize,
    /// The context that it was made from; its own address for a context.
    pub(crate) context: usize,
    /// What must not be destroyed before it.
    pub(crate) parents: Vec<usize>,
    /// How many objects have it as parent.
    pub(crate) children: u32,
    pub(crate) body: Body,
    free: unsafe fn(*mut c_void),
}

/// An object that is to be made.
pub(crate) struct New {
    pub(crate) kind: Kind,
    pub(crate) context: usize,
    pub(crate) parents: Vec<usize>,
    pub(crate) body: Body,
}

/// What only some kinds have.
pub(crate) enum Body {
    Plain,
    Mr(Registration),
    Channel(Channel),
    Cq(Cq),
    Qp(Box<Qp>),
    Srq(sys::ibv_srq_attr),
    Context(Notices),
}

pub(crate) struct Channel {
    /// One byte in the pipe for each event.
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// The completion queues that the events are of.
    pub(crate) events: VecDeque<usize>,
}

/// A completion, and when it came.
#[derive(Clone, Copy)]
pub(crate) struct Completed {
    pub(crate) wc: sys::ibv_wc,
    pub(crate) ticks: u64,
}

#[derive(Default)]
pub(crate) struct Cq {
    pub(crate) completions: VecDeque<Completed>,
    /// The completion at which it stands, between `ibv_start_poll` and `ibv_end_poll`.
    pub(crate) run: Option<Completed>,
    pub(crate) channel: usize,
    pub(crate) armed: Option<Arm>,
    pub(crate) events_read: u32,
    pub(crate) events_acked: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    Any,
    Solicited,
}

pub(crate) struct Qp {
    pub(crate) attr: sys::ibv_qp_attr,
    pub(crate) init: sys::ibv_qp_init_attr,
    /// Between `ibv_wr_start` and its end.
    pub(crate) building: bool,
    /// Inline data since then had no room, so that `ibv_wr_complete` fails.
    pub(crate) inline_too_long: bool,
}

/// What one [`Hca`](crate::Hca) recorded, and shall answer.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) config: Config,
    pub(crate) calls: Vec<Call>,
    pub(crate) modifies: Vec<Modify>,
    /// The requests of each call of `ibv_post_send`.
    pub(crate) sends: Vec<Vec<SendWr>>,
    pub(crate) recvs: Vec<Vec<RecvWr>>,
    pub(crate) wr_calls: Vec<WrCall>,
    /// What the next calls of each verb return.
    pub(crate) verdicts: HashMap<&'static str, VecDeque<c_int>>,
    pub(crate) post_faults: VecDeque<PostFault>,
    made: HashMap<Kind, u32>,
    keys: Numbers,
    qp_nums: Numbers,
}

/// Numbers that are handed out again at once, the last given back first: what a program must not rely on being new.
#[derive(Default)]
struct Numbers {
    last: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.last += 1;
            self.last
        })
    }
}

#[derive(Default)]
pub(crate) struct Universe {
    objects: HashMap<usize, Object>,
    records: Vec<Record>,
}

// SAFETY: the pointers in it (in attribute structs that are kept) are compared and given back, never followed.
unsafe impl Send for Universe {}

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `f` on the one universe.
pub(crate) fn with<R>(f: impl FnOnce(&mut Universe) -> R) -> R {
    static UNIVERSE: LazyLock<Mutex<Universe>> = LazyLock::new(Mutex::default);
    f(&mut UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Stops the program: see "Misuse" in the crate's documentation.
pub(crate) fn misuse(what: &str) -> ! {
    eprintln!("nullhca: {what}");
    std::process::abort()
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

impl Universe {
    /// The index of this thread's [`Hca`](crate::Hca), made if there is none.
    pub(crate) fn current(&mut self) -> usize {
        CURRENT.get().unwrap_or_else(|| {
            self.records.push(Record::default());
            CURRENT.set(Some(self.records.len() - 1));
            self.records.len() - 1
        })
    }

    pub(crate) fn record(&mut self, hca: usize) -> &mut Record {
        match self.records.get_mut(hca) {
            Some(record) => record,
            None => misuse("no such Hca"),
        }
    }

    pub(crate) fn live(&self, hca: usize) -> Live {
        let mut live = Live::default();
        self.objects
            .values()
            .filter(|object| object.hca == hca)
            .for_each(|object| live.count(object.id.kind));
        live
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (usize, &Object)> {
        self.objects.iter().map(|(&at, object)| (at, object))
    }

    pub(crate) fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.objects.values_mut().map(|object| &mut object.body)
    }

    pub(crate) fn body(&mut self, at: usize) -> Option<&mut Body> {
        self.objects.get_mut(&at).map(|object| &mut object.body)
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Object> {
        self.objects.get(&at)
    }

    /// The object of that kind at that address, which `verb` was given.
    pub(crate) fn find(&mut self, verb: &str, kind: Kind, at: usize) -> &mut Object {
        let context = match self.objects.get(&at) {
            Some(object) if object.id.kind == kind => object.context,
            _ => misuse(&format!("{verb}: no living {kind:?} at {at:#x}")),
        };
        if !self.objects.contains_key(&context) {
            misuse(&format!("{verb}: the {kind:?} belongs to a context that was closed"));
        }
        match self.objects.get_mut(&at) {
            Some(object) => object,
            None => misuse("unreachable: the object was just there"),
        }
    }

    /// The same, if it is of that context.
    pub(crate) fn find_in(&mut self, verb: &str, kind: Kind, at: usize, context: usize) -> &mut Object {
        let object = self.find(verb, kind, at);
        if object.context != context {
            misuse(&format!("{verb}: the {kind:?} belongs to another context"));
        }
        object
    }

    /// What the next call of `verb` shall return.
    pub(crate) fn verdict(&mut self, hca: usize, verb: &'static str) -> c_int {
        self.record(hca).verdicts.get_mut(verb).and_then(VecDeque::pop_front).unwrap_or(0)
    }

    pub(crate) fn note(&mut self, hca: usize, verb: &'static str, object: Option<Id>, errno: c_int) {
        self.record(hca).calls.push(Call { verb, object, errno });
    }

    pub(crate) fn new_key(&mut self, hca: usize) -> u32 {
        self.record(hca).keys.take() + 0x1000
    }

    pub(crate) fn new_qp_num(&mut self, hca: usize) -> u32 {
        self.record(hca).qp_nums.take() + 0x10
    }

    pub(crate) fn free_key(&mut self, hca: usize, key: u32) {
        self.record(hca).keys.free.push(key - 0x1000);
    }

    pub(crate) fn free_qp_num(&mut self, hca: usize, qp_num: u32) {
        self.record(hca).qp_nums.free.push(qp_num - 0x10);
    }

    /// Puts a new object into the table; `verb` made it. A `context` of 0 is the object itself.
    pub(crate) fn add<T>(
        &mut self,
        verb: &'static str,
        hca: usize,
        New { kind, context, parents, body }: New,
        object: T,
    ) -> *mut T {
        /// # Safety
        ///
        /// `at` came from `Box::into_raw` of a `Box<T>`, and is not used afterwards.
        unsafe fn free<T>(at: *mut c_void) {
            // SAFETY: by the caller's promise.
            drop(unsafe { Box::from_raw(at.cast::<T>()) });
        }
        let at = Box::into_raw(Box::new(object));
        for parent in &parents {
            if let Some(parent) = self.objects.get_mut(parent) {
                parent.children += 1;
            }
        }
        let number = self.record(hca).made.entry(kind).or_default();
        *number += 1;
        let id = Id { kind, number: *number };
        let context = if context == 0 { at.addr() } else { context };
        let object = Object { id, hca, context, parents, children: 0, body, free: free::<T> };
        self.objects.insert(at.expose_provenance(), object);
        self.note(hca, verb, Some(id), 0);
        at
    }

    /// Destroys what is at `at`, if nothing hangs on it and no fault was asked for: the errno.
    pub(crate) fn destroy(&mut self, verb: &'static str, kind: Kind, at: usize) -> c_int {
        let object = self.find(verb, kind, at);
        let (id, hca, children, context) = (object.id, object.hca, object.children, object.context);
        let errno = match self.verdict(hca, verb) {
            0 if children > 0 && kind != Kind::Context => libc::EBUSY,
            errno => errno,
        };
        self.note(hca, verb, Some(id), errno);
        if errno == 0 {
            notices::forget(self, context, at);
            self.remove(at);
        }
        errno
    }

    pub(crate) fn remove(&mut self, at: usize) {
        let Some(object) = self.objects.remove(&at) else { return };
        for parent in &object.parents {
            if let Some(parent) = self.objects.get_mut(parent) {
                parent.children -= 1;
            }
        }
        // SAFETY: the address was a box's, and its entry is gone.
        unsafe { (object.free)(std::ptr::with_exposed_provenance_mut(at)) };
    }
}
