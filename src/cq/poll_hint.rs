//! What the compiler says where a completion queue is polled that has a poller.

#[cfg(feature = "mlx5")]
use super::{Arm, Delivery, Direct};
use super::{CompletionQueue, CqKind, PollError, PollSuccessesError, WorkCompletion};
use crate::error::Result;
use crate::qp::Extended;

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this completion queue is not polled by `&cq`",
    label = "one poller reads it: `let mut poller = ibv::Poller::<()>::new(&cq)?` of one made by `build_extended` (with its fields for `()`, if it has any), `ibv::mlx5::Poller::new(&cq)?` of a direct one; then `poller.poll(..)`. Code for any kind takes `&mut impl PollCq`"
)]
pub trait PolledByAnybody {
    fn never<T>(&self) -> T;
}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "successes alone are given by an extended completion queue's `Poller`",
    label = "make the queue by `build_extended::<F>()`, where `F` names what is read of each; then `let mut poller = ibv::Poller::<F>::new(&cq)?`, and `poller.poll_successes(..)`"
)]
pub trait GivesSuccesses {
    fn never<T>(&self) -> T;
}

// these methods are here for the compiler's advice alone, and can never be called
impl CompletionQueue<'_, Extended> {
    #[doc(hidden)]
    pub fn poll<'w>(&self, _: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError>
    where
        Self: PolledByAnybody,
    {
        self.never()
    }
}

// as above
#[cfg(feature = "mlx5")]
impl<V: Delivery> CompletionQueue<'_, Direct<V>> {
    #[doc(hidden)]
    pub fn poll<'w>(&self, _: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError>
    where
        Self: PolledByAnybody,
    {
        self.never()
    }

    #[doc(hidden)]
    pub fn arm(&self, _: Arm) -> Result<()>
    where
        Self: PolledByAnybody,
    {
        self.never()
    }
}

// as above
impl<K: CqKind> CompletionQueue<'_, K> {
    #[doc(hidden)]
    pub fn poll_successes<'w, F>(&self, _: &'w mut [F]) -> Result<&'w [F], PollSuccessesError>
    where
        Self: GivesSuccesses,
    {
        self.never()
    }
}
