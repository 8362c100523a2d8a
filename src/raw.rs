//! Owning a C object: the one place where an object's destroy verb is called, and where C results become [`Result`]s.
//!
//! # Safety
//!
//! A [`Raw`] is made from a pointer that a create verb returned, and is the only owner of it. It destroys the object
//! at most once. If that fails, the object stays as it is (libibverbs frees nothing then), and is leaked.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibv_sys as sys;

use crate::error::{Error, Result, VerbError};

/// A C object with its destroy verb.
pub(crate) trait Object {
    /// The destroy verb's name.
    const DESTROY: &'static str;

    /// # Safety
    ///
    /// `object` is alive and nothing uses it after a return value of 0.
    unsafe fn destroy(object: *mut Self) -> c_int;
}

macro_rules! objects {
    ($($object:ident: $destroy:ident),* $(,)?) => {$(
        impl Object for sys::$object {
            const DESTROY: &'static str = stringify!($destroy);

            unsafe fn destroy(object: *mut Self) -> c_int {
                // SAFETY: the caller's promise is the verb's precondition.
                unsafe { sys::$destroy(object) }
            }
        }
    )*};
}

objects! {
    ibv_context: ibv_close_device,
    ibv_pd: ibv_dealloc_pd,
    ibv_mr: ibv_dereg_mr,
    ibv_mw: ibv_dealloc_mw,
    ibv_comp_channel: ibv_destroy_comp_channel,
    ibv_cq: ibv_destroy_cq,
    ibv_qp: ibv_destroy_qp,
    ibv_srq: ibv_destroy_srq,
    ibv_ah: ibv_destroy_ah,
    ibv_td: ibv_dealloc_td,
}

/// The owner of a C object.
#[derive(Debug)]
pub(crate) struct Raw<T: Object> {
    object: NonNull<T>,
    alive: bool,
}

// SAFETY: libibverbs' objects may be used from all threads, and destroyed on any one (man ibv_alloc_td: all but those
// of a thread domain, on which the library is not asked to post here); destruction is exclusive, since it takes `&mut`
// or drop.
unsafe impl<T: Object> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Raw<T> {}

impl<T: Object> Raw<T> {
    /// Takes over what `verb` returned; null is an error, with errno as its reason. `asked` says what was wanted.
    ///
    /// # Safety
    ///
    /// `object` is null with errno set, or a new object that nobody else destroys.
    pub(crate) unsafe fn new(
        verb: &'static str,
        object: *mut T,
        asked: impl FnOnce() -> String,
    ) -> Result<Self> {
        match NonNull::new(object) {
            Some(object) => Ok(Self { object, alive: true }),
            None => Err(last_error(verb, asked)),
        }
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn as_non_null(&self) -> NonNull<T> {
        self.object
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }

    /// Hands it over: the new owner destroys it.
    #[cfg(feature = "mlx5")]
    pub(crate) fn take(&mut self) -> Self {
        Self { object: self.object, alive: std::mem::take(&mut self.alive) }
    }

    /// Gives up on destroying it.
    pub(crate) fn leak(&mut self) {
        self.alive = false;
    }

    /// Destroys the object, unless that was done. After `Err` it is as alive as before.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        if self.alive {
            // SAFETY: it is alive, and `alive` goes false before anybody can come here again.
            check(T::DESTROY, unsafe { T::destroy(self.object.as_ptr()) }, String::new)?;
            self.alive = false;
        }
        Ok(())
    }
}

impl<T: Object> Raw<T> {
    /// Destroys the object, or says that it can't and leaks it: freeing what the device may still use would be worse.
    /// True if it is destroyed, and was not before.
    pub(crate) fn destroy_or_leak(&mut self) -> bool {
        let was_alive = self.alive;
        let result = self.destroy();
        if let Err(error) = &result {
            tracing::error!(%error, "an object could not be destroyed and is leaked");
            self.alive = false;
        }
        was_alive && result.is_ok()
    }
}

impl<T: Object> Drop for Raw<T> {
    fn drop(&mut self) {
        self.destroy_or_leak();
    }
}

/// What `core` holds, if nothing else does: it is to be destroyed.
pub(crate) fn sole<'a, T>(core: &'a mut Arc<T>, verb: &'static str) -> Result<&'a mut T> {
    Arc::get_mut(core)
        .ok_or_else(|| VerbError::new(verb, libc::EBUSY, "something that was made with it is there").into())
}

/// 0 is success, anything else an errno.
pub(crate) fn check(verb: &'static str, result: c_int, asked: impl FnOnce() -> String) -> Result<()> {
    match result {
        0 => Ok(()),
        // the verbs that set errno return -1, the others never do
        -1 => Err(last_error(verb, asked)),
        errno => Err(VerbError::new(verb, errno, asked()).into()),
    }
}

/// The error that errno holds right after `verb` failed.
pub(crate) fn last_error(verb: &'static str, asked: impl FnOnce() -> String) -> Error {
    VerbError::new(verb, last_errno(), asked()).into()
}

/// The errno right after a verb failed.
pub(crate) fn last_errno() -> c_int {
    let errno = io::Error::last_os_error().raw_os_error().filter(|&errno| errno != 0);
    // rxe's create_cq_ex fails with errno 0 on an unknown comp_mask
    errno.unwrap_or(libc::EINVAL)
}
