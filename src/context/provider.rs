//! What has to be known of single providers, the libraries that drive a kind of device each.
//!
//! A region's memory is somebody else's once it is deregistered: what is late fails at the device. But some providers
//! have short data delivered beside the ring's entries, and copy it on the CPU, when its completion is polled, to the
//! address in the request, which may be gone by then. Queue pairs are made here so that they don't.
//!
//! # Safety
//!
//! The functions of libmlx5 are called as `<infiniband/mlx5dv.h>` declares them, on open contexts; the library that
//! they are of stays loaded.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::env::var_os;
#[cfg(not(feature = "mlx5"))]
use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::num::NonZeroUsize;

use ibv_sys as sys;

use crate::device::DeviceAttr;
use crate::error::{Result, VerbError};

/// What of a Mellanox device is not libmlx5's: the device numbers of libmlx4 and libmthca.
const OLDER: [std::ops::RangeInclusive<u32>; 2] = [0..=0x1010, 0x5a00..=0x67ff];
const MELLANOX: u32 = 0x02c9;
const HUAWEI: u32 = 0x19e5;
/// The same on every kernel.
const RXE: u32 = 0x00ff_ffff;

/// At "0", libmlx5 asks for no short data in completions; otherwise it does, by itself.
const SCATTER_SWITCH: &str = "MLX5_SCATTER_TO_CQE";

const MLX5_ADVICE: &str = "libmlx5, as it is by itself, copies short data when its completion is polled, to memory that may be \
     freed by then: have it loaded as libmlx5.so.1 (package rdma-core or ibverbs-providers), set MLX5_SCATTER_TO_CQE=0 \
     in the environment, or see `QueuePairBuilder::allow_late_copies`";
const HNS_ADVICE: &str = "libhns copies short messages when their completions are polled, to memory that may be freed by then, \
     and can't be told not to: see `QueuePairBuilder::allow_late_copies`";

/// A device's provider.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Provider {
    /// libmlx5, with its function that makes queue pairs as they are asked for, if the library was found.
    Mlx5(Option<CreateQp>),
    Hns,
    Rxe,
    Other,
}

/// `mlx5dv_create_qp`.
type CreateQp = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *mut sys::ibv_qp_init_attr_ex,
    *mut Mlx5QpInitAttr,
) -> *mut sys::ibv_qp;
/// `mlx5dv_is_supported`.
type IsSupported = unsafe extern "C" fn(*mut sys::ibv_device) -> bool;

/// `struct mlx5dv_qp_init_attr`, of which libmlx5 reads what `comp_mask` announces. It is not among the bindings
/// without the feature `mlx5`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Mlx5QpInitAttr {
    comp_mask: u64,
    create_flags: u32,
    _unannounced: [u64; 6],
}

impl Mlx5QpInitAttr {
    const CREATE_FLAGS: u64 = 1 << 0;
    const DISABLE_SCATTER_TO_CQE: u32 = 1 << 3;
}

#[cfg(feature = "mlx5")]
const _: () = {
    use std::mem::offset_of;
    assert!(Mlx5QpInitAttr::CREATE_FLAGS == sys::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS as u64);
    assert!(Mlx5QpInitAttr::DISABLE_SCATTER_TO_CQE == sys::MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
    assert!(size_of::<sys::mlx5dv_qp_init_attr>() <= size_of::<Mlx5QpInitAttr>());
    assert!(offset_of!(sys::mlx5dv_qp_init_attr, create_flags) == offset_of!(Mlx5QpInitAttr, create_flags));
};

impl Provider {
    /// That of an open device.
    ///
    /// # Safety
    ///
    /// `context` is open.
    pub(super) unsafe fn of(context: *mut sys::ibv_context, attr: &DeviceAttr) -> Self {
        let part = attr.vendor_part_id();
        let looks_like_mlx5 =
            attr.vendor_id() == MELLANOX && !OLDER.iter().any(|parts| parts.contains(&part));
        // there may be two of it, one of which knows nothing of the other's devices
        // SAFETY: the context is open, so is its device there.
        let its_library =
            Libmlx5::loaded().filter(|library| unsafe { (library.is_supported)((*context).device) });
        match (its_library, attr.vendor_id()) {
            (Some(library), _) => Self::Mlx5(library.create_qp),
            (None, _) if looks_like_mlx5 => Self::Mlx5(None),
            (None, HUAWEI) => Self::Hns,
            (None, RXE) => Self::Rxe,
            (None, _) => Self::Other,
        }
    }

    /// Whether libmlx5 drives it, the one that the direct path calls.
    #[cfg(feature = "mlx5")]
    pub(crate) fn is_mlx5(self) -> bool {
        matches!(self, Self::Mlx5(Some(_)))
    }

    /// How many completions may be read between `ibv_start_poll` and `ibv_end_poll`.
    pub(crate) fn longest_run(self) -> NonZeroUsize {
        match self {
            // rdma-core 44's gives its lock back twice, and finds completions that never were, if a run comes to the
            // queue's end
            Self::Rxe => NonZeroUsize::MIN,
            _ => NonZeroUsize::MAX,
        }
    }

    /// Whether a request that its `ibv_wr_*` refuse leaves the others alone, be the queue full or inline data too long.
    ///
    /// On a full queue, libmlx5's operations write to the request that was posted last (`cur_ctrl`, which an overflow
    /// leaves where it was; rdma-core 25 to 64, and seen with 44), and `libbnxt_re`'s to where a null pointer leads
    /// (64); that one's `wr_set_inline_data`, and libionic's, do not look at all of the length. librxe's look at both
    /// (before rdma-core 38.2, which is older than what this builds against, wrongly where the ring ends). So do
    /// libefa's, as it seems, which were not tried.
    pub(crate) fn refuses_cleanly(self) -> bool {
        matches!(self, Self::Rxe)
    }

    /// The longest part of a region that a window may be bound to.
    ///
    /// libmlx5's lists have 32 bits for a length, of which one is a mark. What is longer it refuses when it has begun
    /// to write the request; of a list, it then rings for that one instead of those before it, which have been accepted
    /// and are not sent until the next post.
    pub(crate) fn longest_window(self) -> u64 {
        match self {
            Self::Mlx5(_) => 1 << 31,
            _ => u64::MAX,
        }
    }

    /// How many elements a request may have that is posted by `ibv_wr_*`, if that is fewer than the queue pair was
    /// given.
    pub(crate) fn most_elements(self) -> u32 {
        match self {
            // its `ibv_wr_set_sge_list` sends wrong lengths before rdma-core 64
            Self::Rxe => 1,
            _ => u32::MAX,
        }
    }

    /// How to make queue pairs so that their data is written by the device alone.
    ///
    /// # Errors
    ///
    /// With EOPNOTSUPP, if that can't be had.
    pub(crate) fn maker(self, device: &str) -> Result<Maker> {
        let refused = |verb, advice| {
            let error = VerbError::new(verb, libc::EOPNOTSUPP, device);
            Err(error.advise(libc::EOPNOTSUPP, Some(advice)).into())
        };
        match self {
            Self::Mlx5(Some(create_qp)) => Ok(Maker(Some(create_qp))),
            // libmlx5 looks there itself at each creation; to change it in between is for callers of `set_var` to
            // answer
            Self::Mlx5(None) if var_os(SCATTER_SWITCH).is_some_and(|value| value == "0") => Ok(Maker::PLAIN),
            Self::Mlx5(None) => refused("mlx5dv_create_qp", MLX5_ADVICE),
            Self::Hns => refused("ibv_create_qp", HNS_ADVICE),
            Self::Rxe | Self::Other => Ok(Maker::PLAIN),
        }
    }
}

/// What makes queue pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker(Option<CreateQp>);

impl Maker {
    /// libibverbs' function, and providers as they are by themselves.
    pub(crate) const PLAIN: Self = Self(None);

    /// `ibv_create_qp` if `attr` says no more than that takes, `ibv_create_qp_ex`, or `mlx5dv_create_qp`: null with
    /// errno set if there is no queue pair.
    ///
    /// # Safety
    ///
    /// `context` is open; what `attr` names is alive and of it.
    pub(crate) unsafe fn create(
        self,
        context: *mut sys::ibv_context,
        attr: &mut sys::ibv_qp_init_attr_ex,
    ) -> *mut sys::ibv_qp {
        match self.0 {
            // SAFETY: by the caller's promise.
            None => unsafe { sys::ibv_create_qp_ex(context, attr) },
            Some(create_qp) => {
                let mut dv = Mlx5QpInitAttr {
                    comp_mask: Mlx5QpInitAttr::CREATE_FLAGS,
                    create_flags: Mlx5QpInitAttr::DISABLE_SCATTER_TO_CQE,
                    _unannounced: [0; 6],
                };
                // SAFETY: by the caller's promise; the structs are ours, and the device is libmlx5's.
                unsafe { create_qp(context, attr, &raw mut dv) }
            }
        }
    }
}

/// What is needed of libmlx5.
struct Libmlx5 {
    is_supported: IsSupported,
    create_qp: Option<CreateQp>,
}

impl Libmlx5 {
    /// That which this crate is linked with for its direct path.
    #[cfg(feature = "mlx5")]
    #[expect(clippy::unnecessary_wraps, reason = "without the feature there may be none")]
    fn loaded() -> Option<Self> {
        type Linked = unsafe extern "C" fn(
            *mut sys::ibv_context,
            *mut sys::ibv_qp_init_attr_ex,
            *mut sys::mlx5dv_qp_init_attr,
        ) -> *mut sys::ibv_qp;
        // SAFETY: the same function; what it reads of the last struct is at the same place in both (see above).
        let create_qp = unsafe { transmute::<Linked, CreateQp>(sys::mlx5dv_create_qp) };
        Some(Self { is_supported: sys::mlx5dv_is_supported, create_qp: Some(create_qp) })
    }

    /// If libibverbs has loaded it, as it has if it drives a device.
    #[cfg(not(feature = "mlx5"))]
    fn loaded() -> Option<Self> {
        // SAFETY: C strings. A library that is not loaded stays so; one that is stays for ever, since its handle is
        // never closed.
        let library = unsafe { libc::dlopen(c"libmlx5.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the handle is open.
        let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        // SAFETY: null, or the functions of these names.
        unsafe {
            Some(Self {
                is_supported: transmute::<*mut c_void, Option<IsSupported>>(symbol(c"mlx5dv_is_supported"))?,
                create_qp: transmute::<*mut c_void, Option<CreateQp>>(symbol(c"mlx5dv_create_qp")),
            })
        }
    }
}
