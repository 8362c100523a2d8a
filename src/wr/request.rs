//! The requests of a send queue.
//!
//! # Safety
//!
//! Nothing here is; `encode` is declared unsafe, for those who call it.

#![expect(unsafe_code, reason = "the Safety section above")]

use ibv_sys as sys;

use super::encode::{Encode, Head, Limits};
use super::error::PostError;
use super::gather::{ANY, Gather, Scatter};
use crate::ah::AddressHandle;
use crate::mr::{MrU64, RemoteSlice, RemoteU64};
use crate::qp::{Atomics, Connected, Datagram, RdmaRead, RdmaWrite, SendInvalidate, Transport};

const SIGNALED: u32 = sys::IBV_SEND_SIGNALED;
const SOLICITED: u32 = sys::IBV_SEND_SOLICITED;
pub(super) const INLINE: u32 = sys::IBV_SEND_INLINE;

/// A request that a queue pair of transport `T` can carry. `'a`: the regions that it names must live as long as the
/// queue pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no request that `{T}` queue pairs can carry",
    label = "make one with `ibv::send(..)`, `write`, `read`, `cmp_swp`, `fetch_add`; on UD with `send(..).to(&ah, qpn, qkey)`"
)]
pub trait SendRequest<'a, T: Transport>: sealed::Request {
    /// Whether the queue pair can carry it. (What goes by `ibv_wr_*` is asked in parts: a list has one branch for all
    /// that is too long, and the provider looks at inline data itself.)
    #[doc(hidden)]
    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        self.suits(limits)?;
        if self.too_long() != 0 {
            return Err(PostError::RemoteTooShort);
        }
        limits.inline(self.inline_bytes())
    }

    /// [`check`](Self::check), but for [`too_long`](Self::too_long) and [`inline_bytes`](Self::inline_bytes).
    #[doc(hidden)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError>;

    /// Not 0 if its data is longer than the peer's slice. That was found when it was made, so that a list that lies in
    /// memory is looked at by one OR for each.
    #[doc(hidden)]
    #[inline(always)]
    fn too_long(&self) -> u32 {
        0
    }

    /// How much inline data it has.
    #[doc(hidden)]
    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        0
    }

    /// # Safety
    ///
    /// [`check`](Self::check), or its parts, accepted it for the queue pair that it is written for: a provider takes
    /// any address handle for its own.
    #[doc(hidden)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError>;

    /// The provider has taken it, or may have, or a list that will be given to the provider has.
    ///
    /// # Safety
    ///
    /// So it is: what may be done with a window hangs on it.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn posted(&self) {}
}

/// A request that can be [prepared](crate::QueuePair::prepare): what it points to besides regions, an address handle,
/// lives for `'a` too. (Inline bytes are copied.)
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be posted again and again",
    label = "each bind of a window has a key of its own, and is invalidated once: make the request anew, and `post` it"
)]
pub trait Keepable<'a>: sealed::Request {}

impl<'a, 'h: 'a, D, I> Keepable<'a> for SendTo<'h, D, I> {}

pub(super) mod sealed {
    pub trait Request {}
    pub trait Immediate {}
}

/// What can be said of every request.
macro_rules! setters {
    ([$($generics:tt)*] $request:ty) => {
        impl<$($generics)*> $request {
            /// Its completion carries this id (`wr_id`); 0 if not said.
            #[inline(always)]
            pub fn id(mut self, id: u64) -> Self {
                self.head.id = id;
                self
            }

            /// It completes visibly (`IBV_SEND_SIGNALED`). One that does not completes in silence, unless it fails,
            /// and its place in the queue is free again only when a later signaled one was polled.
            #[inline(always)]
            pub fn signaled(mut self) -> Self {
                self.head.flags |= ::ibv_sys::IBV_SEND_SIGNALED;
                self
            }

            /// It starts only after all earlier READs and atomics are done (`IBV_SEND_FENCE`; RC).
            #[inline(always)]
            pub fn fence(mut self) -> Self {
                self.head.flags |= ::ibv_sys::IBV_SEND_FENCE;
                self
            }
        }
    };
}
pub(super) use setters;

macro_rules! request {
    ($(#[$meta:meta])* $name:ident<$($g:ident $(= $default:ty)?),*> { $($field:ident: $type:ty),* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[must_use = "a request does nothing until it is posted"]
        // the data first: beside an `Option<u32>` that is often left undefined, the compiler moves both through memory
        #[repr(C)]
        pub struct $name<$($g $(= $default)?),*> {
            $($field: $type,)*
            head: Head,
        }

        impl<$($g),*> sealed::Request for $name<$($g),*> {}
        impl<$($g),*> Keepable<'_> for $name<$($g),*> {}
        setters!([$($g),*] $name<$($g),*>);
    };
}

macro_rules! solicited {
    ($($name:ident<$($g:ident),*>),*) => {$(
        impl<$($g),*> $name<$($g),*> {
            /// The peer's completion queue raises an event even if it is armed for solicited ones only
            /// (`IBV_SEND_SOLICITED`; for a WRITE, only one with immediate).
            #[inline(always)]
            pub fn solicited(mut self) -> Self {
                self.head.flags |= SOLICITED;
                self
            }
        }
    )*};
}

/// The immediate data of a SEND or WRITE: `()` for none, 32 bits, or perhaps some, for lists in which one request has
/// them and others have not.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Extended, MrSlice, PostError, QueuePair, Rc, RemoteSlice, state::Rts, write_imm};
/// # fn f<'a>(
/// #     qp: &mut QueuePair<'a, Rc, Rts, Extended>, parts: [MrSlice<'a>; 2], to: [RemoteSlice; 2],
/// # ) -> Result<(), PostError> {
/// // only the last one tells the peer
/// qp.post_list(&[write_imm(parts[0], to[0], None), write_imm(parts[1], to[1], Some(7)).signaled()])
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be immediate data",
    label = "give a `u32`, or an `Option<u32>`"
)]
pub trait Immediate: Copy + sealed::Immediate {
    #[doc(hidden)]
    fn get(self) -> Option<u32>;
}

macro_rules! immediate {
    ($($type:ty => |$imm:pat_param| $value:expr;)*) => {$(
        impl sealed::Immediate for $type {}

        impl Immediate for $type {
            #[inline(always)]
            fn get(self) -> Option<u32> {
                let $imm = self;
                $value
            }
        }
    )*};
}

immediate! {
    () => |()| None;
    u32 => |imm| Some(imm);
    Option<u32> => |imm| imm;
}

pub(super) const HEAD: Head = Head { id: 0, flags: 0 };

request! {
    /// A message, made by [`send`] or [`send_imm`]; `I`: its [`Immediate`] data.
    Send<D, I = ()> { data: D, imm: I }
}
request! {
    /// A message that invalidates a window of the peer's, made by [`send_inv`].
    SendInv<D> { data: D, rkey: u32 }
}
request! {
    /// An RDMA WRITE, made by [`write()`] or [`write_imm`]; `I`: its [`Immediate`] data.
    Write<D, I = ()> { data: D, to: RemoteSlice, imm: I, too_long: u32 }
}
request! {
    /// An RDMA READ, made by [`read()`].
    Read<D> { into: D, from: RemoteSlice, too_long: u32 }
}
request! {
    /// A compare-and-swap, made by [`cmp_swp`].
    CmpSwp<D> { into: D, at: RemoteU64, compare: u64, swap: u64 }
}
request! {
    /// A fetch-and-add, made by [`fetch_add`].
    FetchAdd<D> { into: D, at: RemoteU64, add: u64 }
}
solicited!(Send<D, I>, SendInv<D>, Write<D, I>);

/// `IBV_WR_SEND`—A message into the next receive that the peer posted.
///
/// In a list whose other requests have immediate data, `send_imm(data, None)` is of their type.
///
/// On UD it needs a destination, [`.to(..)`](Send::to), and fits one packet.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{MrSlice, PostError, QueuePair, send};
/// # fn f<'a>(qp: &QueuePair<'a>, data: MrSlice<'a>) -> Result<(), PostError> {
/// qp.post(send(data).signaled().id(1))
/// # }
/// ```
#[doc(alias = "IBV_WR_SEND")]
#[inline(always)]
pub fn send<D>(data: D) -> Send<D> {
    Send { head: HEAD, data, imm: () }
}

/// `IBV_WR_SEND_WITH_IMM`—A message with 32 bits that the peer finds in its completion
/// ([`Completion::imm`](crate::Completion::imm)).
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Empty, PostError, QueuePair, send_imm};
/// # fn f<'a>(qp: &QueuePair<'a>) -> Result<(), PostError> {
/// qp.post(send_imm(Empty, 42).solicited()) // the peer finds 42 in `Completion::imm`
/// # }
/// ```
#[doc(alias = "IBV_WR_SEND_WITH_IMM")]
#[inline(always)]
pub fn send_imm<D, I: Immediate>(data: D, imm: I) -> Send<D, I> {
    Send { head: HEAD, data, imm }
}

/// `IBV_WR_SEND_WITH_INV`—A message that makes `rkey`, of a memory window of the peer's (type 2), invalid: when the
/// peer finds it in its completion ([`Completion::invalidated_rkey`](crate::Completion::invalidated_rkey)), nobody
/// reaches the peer's memory by it any more.
///
/// If the peer's window is not bound by that key, its queue pair and this one go to the error state.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Empty, PostError, QueuePair, RemoteRegion, send_inv};
/// # fn f(qp: &QueuePair<'_>, window: RemoteRegion) -> Result<(), PostError> {
/// qp.post(send_inv(Empty, window.rkey).signaled()) // we are done with what the peer let us use
/// # }
/// ```
#[doc(alias = "IBV_WR_SEND_WITH_INV")]
#[inline(always)]
pub fn send_inv<D>(data: D, rkey: u32) -> SendInv<D> {
    SendInv { head: HEAD, data, rkey }
}

/// `IBV_WR_RDMA_WRITE`—Writes to the peer's memory; the peer notices nothing.
///
/// In a list whose other requests have immediate data, `write_imm(data, to, None)` is of their type.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, MrSlice, QueuePair, RemoteRegion, write};
/// # fn f<'a>(qp: &QueuePair<'a>, data: MrSlice<'a>, peer: RemoteRegion) -> Result<(), Error> {
/// let to = peer.slice(..data.len() as usize)?;
/// qp.post(write(data, to).signaled())?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_RDMA_WRITE")]
#[inline(always)]
pub fn write<'a, D: Gather<'a>>(data: D, to: RemoteSlice) -> Write<D> {
    write_imm(data, to, ())
}

/// `IBV_WR_RDMA_WRITE_WITH_IMM`—Writes to the peer's memory, then completes a receive of the peer's with 32 bits.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{MrSlice, PostError, QueuePair, RemoteSlice, write_imm};
/// # fn f<'a>(qp: &QueuePair<'a>, data: MrSlice<'a>, to: RemoteSlice) -> Result<(), PostError> {
/// qp.post(write_imm(data, to, 7).signaled()) // the peer has a receive posted, which completes with 7
/// # }
/// ```
#[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
#[inline(always)]
pub fn write_imm<'a, D: Gather<'a>, I: Immediate>(data: D, to: RemoteSlice, imm: I) -> Write<D, I> {
    let mut request = Write { head: HEAD, data, to, imm, too_long: 0 };
    // not before: the compiler would load several fields of the data at once, to take them apart again
    request.too_long = (request.data.bytes() > request.to.len.into()).into();
    request
}

/// `IBV_WR_RDMA_READ`—Reads from the peer's memory; the peer notices nothing.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, MrSlice, QueuePair, RemoteRegion, read};
/// # fn f<'a>(qp: &QueuePair<'a>, into: MrSlice<'a>, peer: RemoteRegion) -> Result<(), Error> {
/// let from = peer.slice(..into.len() as usize)?;
/// qp.post(read(into, from).signaled())?; // `into` is filled when this has completed
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_RDMA_READ")]
#[inline(always)]
pub fn read<'a, D: Scatter<'a>>(into: D, from: RemoteSlice) -> Read<D> {
    let mut request = Read { head: HEAD, into, from, too_long: 0 };
    // as in `write_imm`
    request.too_long = (request.into.bytes() > request.from.len.into()).into();
    request
}

/// `IBV_WR_ATOMIC_CMP_AND_SWP`—If the peer's word of 8 bytes is `compare`, makes it `swap`; `into` gets what it was.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, MemoryRegion, QueuePair, RemoteRegion, cmp_swp};
/// # fn f<'a>(qp: &QueuePair<'a>, mr: &'a MemoryRegion<'a>, peer: RemoteRegion) -> Result<(), Error> {
/// qp.post(cmp_swp(mr.u64_at(0)?, peer.u64_at(0)?, 0, 1).signaled())?;
/// // … and when it has completed:
/// let locked = mr.load_u64(0)? == 0;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
#[inline(always)]
pub fn cmp_swp(into: MrU64<'_>, at: RemoteU64, compare: u64, swap: u64) -> CmpSwp<MrU64<'_>> {
    CmpSwp { head: HEAD, into, at, compare, swap }
}

/// `IBV_WR_ATOMIC_FETCH_AND_ADD`—Adds to the peer's word of 8 bytes, wrapping around; `into` gets what it was.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, MemoryRegion, QueuePair, RemoteRegion, fetch_add};
/// # fn f<'a>(qp: &QueuePair<'a>, mr: &'a MemoryRegion<'a>, peer: RemoteRegion) -> Result<(), Error> {
/// qp.post(fetch_add(mr.u64_at(0)?, peer.u64_at(0)?, 1).signaled())?;
/// // … and when it has completed:
/// let ticket = mr.load_u64(0)?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
#[inline(always)]
pub fn fetch_add(into: MrU64<'_>, at: RemoteU64, add: u64) -> FetchAdd<MrU64<'_>> {
    FetchAdd { head: HEAD, into, at, add }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    pub(crate) ah: &'a AddressHandle<'a>,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// A datagram with its destination, made by [`Send::to`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendTo<'a, D, I = ()> {
    send: Send<D, I>,
    to: Address<'a>,
}

impl<D, I> sealed::Request for SendTo<'_, D, I> {}

impl<D, I> Send<D, I> {
    /// `wr.ud`—On UD: to queue pair `qpn` at `ah`, which accepts datagrams with its own `qkey` alone.
    ///
    /// The handle is read while the request is posted. Destroying it before the datagram has completed harms nothing
    /// here, but the datagram may fail or go astray.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{AddressHandle, Endpoint, MrSlice, PostError, QueuePair, Ud, send};
    /// # fn f<'a>(
    /// #     qp: &QueuePair<'a, Ud>, ah: &AddressHandle<'_>, data: MrSlice<'a>, peer: Endpoint,
    /// # ) -> Result<(), PostError> {
    /// const QKEY: u32 = 0x1111_1111; // the peer gave it to `UdInitAttr::new`
    /// qp.post(send(data).to(ah, peer.qpn, QKEY).signaled())
    /// # }
    /// ```
    #[inline(always)]
    pub fn to<'a>(self, ah: &'a AddressHandle<'a>, qpn: u32, qkey: u32) -> SendTo<'a, D, I> {
        SendTo { send: self, to: Address { ah, qpn, qkey } }
    }
}

impl<D, I> SendTo<'_, D, I> {
    /// As [`Send::id`].
    #[inline(always)]
    pub fn id(mut self, id: u64) -> Self {
        self.send.head.id = id;
        self
    }

    /// As [`Send::signaled`].
    #[inline(always)]
    pub fn signaled(mut self) -> Self {
        self.send.head.flags |= SIGNALED;
        self
    }

    /// As [`Send::solicited`].
    #[inline(always)]
    pub fn solicited(mut self) -> Self {
        self.send.head.flags |= SOLICITED;
        self
    }
}

/// Writes the head, with what the data asks for.
#[inline(always)]
fn with_data<'a, D: Gather<'a>, E>(head: &Head, write: impl FnOnce(&Head) -> E) -> E {
    // by reference where it can be: see `Head`
    if D::FLAGS == 0 { write(head) } else { write(&Head { flags: head.flags | D::FLAGS, ..*head }) }
}

impl<'a, T: Connected, D: Gather<'a>, I: Immediate> SendRequest<'a, T> for Send<D, I> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        self.data.check(limits, ANY)
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        self.data.inline_bytes()
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        self.data.put(with_data::<D, _>(&self.head, |head| to.send(head, self.imm.get())))
    }
}

impl<'a, T: SendInvalidate, D: Gather<'a>> SendRequest<'a, T> for SendInv<D> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.op(sys::IBV_QP_EX_WITH_SEND_WITH_INV)?;
        self.data.check(limits, ANY)
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        self.data.inline_bytes()
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        self.data.put(with_data::<D, _>(&self.head, |head| to.send_inv(head, self.rkey)))
    }
}

impl<'a, T: Datagram, D: Gather<'a>, I: Immediate> SendRequest<'a, T> for SendTo<'_, D, I> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.address(&self.to)?;
        self.send.data.check(limits, ANY)
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        self.send.data.inline_bytes()
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        let to = with_data::<D, _>(&self.send.head, |head| to.send(head, self.send.imm.get()));
        self.send.data.put(to.ud(&self.to))
    }
}

/// [`check`](SendRequest::check) of a request with a peer's slice, in the form of which the compiler makes one
/// comparison where the default makes two. (What is too long has bytes, so that it has no room in 0.)
#[inline(always)]
fn check_with_room<'a>(data: &impl Gather<'a>, too_long: u32, limits: &Limits) -> Result<(), PostError> {
    data.check(limits, if too_long == 0 { ANY } else { 0 })?;
    limits.inline(data.inline_bytes())
}

impl<'a, T: RdmaWrite, D: Gather<'a>, I: Immediate> SendRequest<'a, T> for Write<D, I> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        self.data.check(limits, ANY)
    }

    #[inline(always)]
    fn too_long(&self) -> u32 {
        self.too_long
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        check_with_room(&self.data, self.too_long, limits)
    }

    #[inline(always)]
    fn inline_bytes(&self) -> usize {
        self.data.inline_bytes()
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        self.data.put(with_data::<D, _>(&self.head, |head| to.write(head, &self.to, self.imm.get())))
    }
}

impl<'a, T: RdmaRead, D: Scatter<'a>> SendRequest<'a, T> for Read<D> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        self.into.check(limits, ANY)
    }

    #[inline(always)]
    fn too_long(&self) -> u32 {
        self.too_long
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        check_with_room(&self.into, self.too_long, limits)
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        self.into.put(to.read(&self.head, &self.from))
    }
}

impl<'a, T: Atomics> SendRequest<'a, T> for CmpSwp<MrU64<'a>> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.op(sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.cmp_swp(&self.head, &self.at, self.compare, self.swap).slice(self.into.as_slice())
    }
}

impl<'a, T: Atomics> SendRequest<'a, T> for FetchAdd<MrU64<'a>> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.op(sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.fetch_add(&self.head, &self.at, self.add).slice(self.into.as_slice())
    }
}
