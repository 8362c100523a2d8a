//! What the tests stand on: the device, queue pairs of both kinds, and a look into their memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ibv::sys;
use ibv::{
    Backend, Basic, Bare, CompletionQueue, Connected, Connection, Context, Direct, InitAttr, LocalPort, Mtu, Poller as _P,
    ProtectionDomain, QueuePair, QueuePairBuilder, RemoteAccess, Transport, WorkCompletion, state,
};
use softhca::{Config, Hca};

static ONE: Mutex<()> = Mutex::new(());
