//! The tests of the direct path that run in each mode of the device.

mod alike;
mod atomics;
mod bytes;
mod compressed;
mod cqes;
mod graves;
mod lies;
mod life;
mod memory;
mod refused;
pub(crate) mod rig;
mod rules;
mod scattered;
mod shared;
mod sizes;
mod together;
mod windows;
