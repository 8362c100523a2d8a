//! The fences of the direct path: the only ones, each with what it pairs with.
//!
//! | here | rdma-core | x86-64 | aarch64 |
//! |---|---|---|---|
//! | [`wqe_before_record`] | `udma_to_device_barrier` | compiler only | `dmb oshst` |
//! | [`record_before_register`] | `mmio_wc_start` | `sfence` | `dsb st` |
//! | [`flush_register`] | `mmio_flush_writes` | `sfence` | `dsb st` |
//! | [`flush_line`] | `mmio_flush_writes` | nothing (rdma-core: `sfence`) | `dsb st` |
//! | [`cqe_after_owner`] | `udma_from_device_barrier` | compiler only (rdma-core: `lfence`) | `dmb oshld` |
//! | [`cqe_before_record`] | nothing | compiler only | `dmb oshld` |
//!
//! x86-64 keeps stores in order with stores and loads with loads, if the memory is write-back, as rings and doorbell
//! records are. The register page is write-combining: stores to it are ordered with others by `sfence` alone.
//!
//! `lfence` orders loads that are ordered already; what it adds is to keep later instructions from *starting*, which
//! no rule of the ring asks for.
//!
//! # Safety
//!
//! The instructions order memory accesses and do nothing else.

#![expect(unsafe_code, reason = "the Safety section above")]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the mlx5 direct path knows the barriers of x86-64 and aarch64 alone");

macro_rules! barriers {
    ($($(#[doc = $doc:literal])+ $name:ident: x86_64 $x86:literal, aarch64 $arm:literal;)*) => {$(
        $(#[doc = $doc])+
        #[inline(always)]
        pub(super) fn $name() {
            // SAFETY: a fence, or nothing; without `nomem`, so that the compiler keeps accesses on their side.
            #[cfg(target_arch = "x86_64")]
            unsafe { std::arch::asm!($x86, options(nostack, preserves_flags)) };
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe { std::arch::asm!($arm, options(nostack, preserves_flags)) };
        }
    )*};
}

barriers! {
    /// Between filling WQEs (and the slots that go with them) and telling their number in the doorbell record.
    ///
    /// Pairs with the device, which reads the record before the WQEs.
    wqe_before_record: x86_64 "", aarch64 "dmb oshst";
    /// Between the doorbell record and the store to the register.
    ///
    /// Pairs with the device, which reads the record when the register was written. It also keeps two stores to
    /// registers in order, each having one before it.
    record_before_register: x86_64 "sfence", aarch64 "dsb st";
    /// After a store to a register that is shorter than its line, and would wait in the write-combining buffer.
    flush_register: x86_64 "sfence", aarch64 "dsb st";
    /// Between finding that an entry is ours and reading the rest of it.
    ///
    /// Pairs with the device, which writes the owner bit last.
    cqe_after_owner: x86_64 "", aarch64 "dmb oshld";
    /// Between the last reading of entries and giving them back in the doorbell record.
    ///
    /// Pairs with the device, which writes an entry again only after it was given back. (rdma-core has nothing here.)
    cqe_before_record: x86_64 "", aarch64 "dmb oshld";
}

/// After stores to a register that fill lines of it.
///
/// x86-64 sends a full line at once; on aarch64 nothing says when stores to memory that is normal and not cached are no
/// longer gathered.
#[inline(always)]
pub(super) fn flush_line() {
    #[cfg(target_arch = "aarch64")]
    flush_register();
}
