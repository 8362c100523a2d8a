//! The data of a request.

use super::encode::{Encode, Limits};
use super::error::PostError;
use super::request::INLINE;
use crate::mr::MrSlice;

/// The longest message: 2³¹ bytes (InfiniBand specification 9.7.2).
const MAX_MESSAGE: u64 = 1 << 31;

/// The room of what goes into no slice of the peer's.
pub(super) const ANY: u64 = u64::MAX;

/// What a SEND or WRITE takes its bytes from: a [`MrSlice`], an array or slice of them, [`Inline`] bytes, [`Empty`], or
/// a reference to one of these.
///
/// `'a`: regions must live as long as the queue pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the data of a request",
    label = "give a `mr.slice(..)?`, an array of those, `Inline(&bytes)` or `Empty`"
)]
pub trait Gather<'a>: sealed::Data {
    #[doc(hidden)]
    const FLAGS: u32 = 0;

    /// How many.
    #[doc(hidden)]
    fn bytes(&self) -> u64;

    /// How many of those need room for inline data.
    #[doc(hidden)]
    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        0
    }

    /// Whether the queue pair was made for so much, but for inline data, and the peer's slice is as long: `room`, or
    /// [`ANY`].
    #[doc(hidden)]
    fn check(&self, limits: &Limits, room: u64) -> Result<(), PostError>;

    #[doc(hidden)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError>;
}

/// What a receive or READ puts its bytes into: a [`MrSlice`], an array or slice of them, [`Empty`], or a reference to
/// one of these.
///
/// `'a`: regions must live as long as the queue pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot take in the data of a receive or READ",
    label = "the device writes here: give a `mr.slice(..)?`, an array of those, or `Empty`"
)]
pub trait Scatter<'a>: Gather<'a> {
    #[doc(hidden)]
    fn slices(&self) -> &[MrSlice<'a>];

    /// Whether the queue pair was made for receives of so much; it always is for one element.
    #[doc(hidden)]
    #[inline(always)]
    fn check_recv(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }
}

mod sealed {
    pub trait Data {}
}

impl sealed::Data for MrSlice<'_> {}

impl<'a> Gather<'a> for MrSlice<'a> {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        MrSlice::len(self).into()
    }

    #[inline(always)]
    fn check(&self, _: &Limits, room: u64) -> Result<(), PostError> {
        fits(self.bytes(), room)
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.slice(self)
    }
}

impl<'a> Scatter<'a> for MrSlice<'a> {
    #[inline(always)]
    fn slices(&self) -> &[Self] {
        std::slice::from_ref(self)
    }
}

impl sealed::Data for [MrSlice<'_>] {}

impl<'a> Gather<'a> for [MrSlice<'a>] {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.iter().map(|slice| u64::from(slice.len())).sum()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits, room: u64) -> Result<(), PostError> {
        limits.send_sges(self.len())?;
        message_fits(self.bytes(), room)
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.slices(self)
    }
}

impl<'a> Scatter<'a> for [MrSlice<'a>] {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice<'a>] {
        self
    }

    #[inline(always)]
    fn check_recv(&self, limits: &Limits) -> Result<(), PostError> {
        limits.recv_sges(self.len())?;
        message_fits(self.bytes(), ANY)
    }
}

impl<const N: usize> sealed::Data for [MrSlice<'_>; N] {}

impl<'a, const N: usize> Gather<'a> for [MrSlice<'a>; N] {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.as_slice().bytes()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits, room: u64) -> Result<(), PostError> {
        self.as_slice().check(limits, room)
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        self.as_slice().put(to)
    }
}

impl<'a, const N: usize> Scatter<'a> for [MrSlice<'a>; N] {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice<'a>] {
        self
    }

    #[inline(always)]
    fn check_recv(&self, limits: &Limits) -> Result<(), PostError> {
        self.as_slice().check_recv(limits)
    }
}

impl<D: sealed::Data + ?Sized> sealed::Data for &D {}

/// By reference, fields are loaded when the request is written, and not kept in registers until then: fewer
/// instructions for requests that are given to `ibv_wr_*` one by one.
impl<'a, D: Gather<'a> + ?Sized> Gather<'a> for &D {
    const FLAGS: u32 = D::FLAGS;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        (**self).inline_bytes()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits, room: u64) -> Result<(), PostError> {
        (**self).check(limits, room)
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        (**self).put(to)
    }
}

impl<'a, D: Scatter<'a> + ?Sized> Scatter<'a> for &D {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice<'a>] {
        (**self).slices()
    }

    #[inline(always)]
    fn check_recv(&self, limits: &Limits) -> Result<(), PostError> {
        (**self).check_recv(limits)
    }
}

#[inline(always)]
fn fits(bytes: u64, room: u64) -> Result<(), PostError> {
    if bytes <= room { Ok(()) } else { Err(PostError::RemoteTooShort) }
}

/// Providers add lengths up in 32 bits (rxe sends 2 × 2 GiB as nothing, with success).
#[inline(always)]
fn message_fits(bytes: u64, room: u64) -> Result<(), PostError> {
    if bytes <= MAX_MESSAGE { fits(bytes, room) } else { Err(PostError::MessageTooLong) }
}

/// No bytes: a message of length 0, or a receive that only takes immediate data.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Empty, PostError, QueuePair, recv, send_imm};
/// # fn f(qp: &QueuePair<'_>) -> Result<(), PostError> {
/// qp.post_recv(recv(Empty))?; // for the immediate data that the peer sends
/// qp.post(send_imm(Empty, 42).signaled())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl sealed::Data for Empty {}

impl<'a> Gather<'a> for Empty {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn check(&self, _: &Limits, _: u64) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.slices(&[])
    }
}

impl<'a> Scatter<'a> for Empty {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice<'a>] {
        &[]
    }
}

/// Bytes that are copied into the request when it is posted (`IBV_SEND_INLINE`): they need no registration, and may
/// be reused at once.
///
/// How many fit is fixed when the queue pair is made
/// ([`QueuePairBuilder::inline`](crate::QueuePairBuilder::inline)).
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Inline, PostError, QueuePair, send};
/// # fn f(qp: &QueuePair<'_>, sequence: u64) -> Result<(), PostError> {
/// qp.post(send(Inline(&sequence.to_be_bytes())).signaled()) // made with `.inline(8)` or more
/// # }
/// ```
#[doc(alias = "IBV_SEND_INLINE")]
#[derive(Clone, Copy, Debug)]
pub struct Inline<'i>(pub &'i [u8]);

impl sealed::Data for Inline<'_> {}

impl<'a> Gather<'a> for Inline<'_> {
    const FLAGS: u32 = INLINE;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn check(&self, _: &Limits, room: u64) -> Result<(), PostError> {
        fits(self.bytes(), room)
    }

    #[inline(always)]
    fn put<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.inline(self.0)
    }
}
