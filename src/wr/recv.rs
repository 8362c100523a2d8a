//! The request of a receive queue.

/// A receive, made by [`recv`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct Recv<D> {
    pub(crate) id: u64,
    pub(crate) into: D,
}

/// `ibv_recv_wr`—Room for one message, or for the immediate data of one WRITE.
///
/// On UD the first [`GRH_LEN`](crate::GRH_LEN) bytes are for the routing header.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{MrSlice, PostError, QueuePair, recv};
/// # fn f<'a>(qp: &QueuePair<'a>, room: MrSlice<'a>) -> Result<(), PostError> {
/// qp.post_recv(recv(room).id(7)) // its completion says how many bytes came: `Completion::byte_len`
/// # }
/// ```
#[doc(alias = "ibv_recv_wr")]
#[inline(always)]
pub fn recv<D>(into: D) -> Recv<D> {
    Recv { id: 0, into }
}

impl<D> Recv<D> {
    /// Its completion carries this id (`wr_id`); 0 if not said.
    #[inline(always)]
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }
}
