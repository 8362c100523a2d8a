//! What the compiler says where a completion queue is polled that has a poller.

#[cfg(feature = "mlx5")]
use super::{Arm, Delivery, Direct};
use super::{CompletionQueue, PollError, WorkCompletion};
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
