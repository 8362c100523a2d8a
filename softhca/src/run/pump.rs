//! Pump mode and the device thread.

use crate::uverbs::attrs::Attrs;

/// Starts the thread that serves real-time modes, once.
pub(crate) fn start_service() {}

/// After a successful command: lets the device run inside the new object's data-path functions.
pub(crate) fn wrap(_attrs: Attrs) {}
