//! Which completion queues queue pairs complete to, and how they hold them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use ibv_sys as sys;

use super::{Bare, CompletionQueue, CqKind, Room};
use crate::context::Context;
use crate::parent::Parent;
use crate::qp::Extended;

/// A completion queue for what is of kind `K`: `&cq`, an `Arc`, or a reference to one. Queue pairs that post by
/// libibverbs complete to [`Bare`] and to [`Extended`] ones; a [`Poller`](crate::Poller) is of an extended one; direct
/// queue pairs, shared receive queues and pollers take direct ones.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no completion queue of kind `{K}`, which is wanted here",
    label = "give `&cq`, an `Arc` or `&arc` of one made by `build` or `build_extended` (for a `Poller` by that); for what is \
             direct (queue pair, shared receive queue, `mlx5::Poller`) of one made by `build_direct`, or all by \
             `build_direct_scattered`"
)]
pub trait CqFor<'a, K: CqKind = Bare>: sealed::Sealed {
    #[doc(hidden)]
    fn into_parent(self) -> CqParent<'a, K>;
}

mod sealed {
    pub trait Sealed {}
}

/// A completion queue as its queue pairs hold it.
pub struct CqParent<'a, K: CqKind>(Held<'a, K>);

enum Held<'a, K: CqKind> {
    Own(Parent<'a, CompletionQueue<'a, K>>),
    Extended(Parent<'a, CompletionQueue<'a, Extended>>, K::OrExtended),
}

impl<'a, K: CqKind> CqParent<'a, K> {
    pub(crate) fn as_ptr(&self) -> *mut sys::ibv_cq {
        match &self.0 {
            Held::Own(cq) => cq.as_ptr(),
            Held::Extended(cq, _) => cq.as_ptr(),
        }
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.0 {
            Held::Own(cq) => cq.context(),
            Held::Extended(cq, _) => cq.context(),
        }
    }

    pub(crate) fn room(&self) -> &Room {
        match &self.0 {
            Held::Own(cq) => cq.room(),
            Held::Extended(cq, _) => cq.room(),
        }
    }
}

impl<'a, K: CqKind<OrExtended = Infallible>> CqParent<'a, K> {
    /// The queue, which is of kind `K` and no other.
    pub(crate) fn into_own(self) -> Parent<'a, CompletionQueue<'a, K>> {
        match self.0 {
            Held::Own(cq) => cq,
            Held::Extended(_, never) => match never {},
        }
    }
}

#[cfg(feature = "mlx5")]
impl<'a, V: super::Delivery> CqParent<'a, super::Direct<V>> {
    pub(crate) fn direct(&self) -> &CompletionQueue<'a, super::Direct<V>> {
        match &self.0 {
            Held::Own(cq) => cq,
            Held::Extended(_, never) => match *never {},
        }
    }
}

impl<K: CqKind> Clone for CqParent<'_, K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Held::Own(cq) => Held::Own(cq.clone()),
            Held::Extended(cq, or) => Held::Extended(cq.clone(), *or),
        })
    }
}

impl<K: CqKind> fmt::Debug for CqParent<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Held::Own(cq) => cq.fmt(f),
            Held::Extended(cq, _) => cq.fmt(f),
        }
    }
}

macro_rules! parents {
    ($([$($generic:tt)*] $holder:ty => $own:ty;)*) => {$(
        impl<$($generic)*> sealed::Sealed for $holder {}

        impl<$($generic)*> CqFor<'a, K> for $holder {
            fn into_parent(self) -> CqParent<'a, K> {
                CqParent(Held::Own(self.into()))
            }
        }

        impl<'a> CqFor<'a, Bare> for $own {
            fn into_parent(self) -> CqParent<'a, Bare> {
                CqParent(Held::Extended(self.into(), ()))
            }
        }
    )*};
}

parents! {
    ['a, K: CqKind] &'a CompletionQueue<'a, K> => &'a CompletionQueue<'a, Extended>;
    ['a, K: CqKind] Arc<CompletionQueue<'a, K>> => Arc<CompletionQueue<'a, Extended>>;
    ['a, K: CqKind] &Arc<CompletionQueue<'a, K>> => &Arc<CompletionQueue<'a, Extended>>;
}
