//! The suite in trap mode: as manual, and each doorbell store is checked.

mod common;
mod suite;

const MODE: softhca::Mode = softhca::Mode::Trap;
