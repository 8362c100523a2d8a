//! `Send`, `Sync`, sizes: what is documented of each public type.

use std::panic::{RefUnwindSafe, UnwindSafe};

use ibv::qp::attr;
use ibv::*;

const fn send<T: std::marker::Send>() {}
const fn both<T: std::marker::Send + Sync>() {}
const fn owned<T: 'static>() {}

// Objects: libibverbs locks where it must, and destruction is exclusive.
const _: () = {
    both::<DeviceList>();
    both::<Context>();
    both::<ProtectionDomain<'_>>();
    both::<MemoryRegion<'_, Local>>();
    both::<MemoryRegion<'_, Remote>>();
    both::<MemoryRegion<'_, Local, Vec<u8>>>();
    both::<CompletionChannel<'_>>();
    both::<CompletionQueue<'_>>();
    both::<AddressHandle<'_>>();
    both::<QueuePair<'_, Rc, state::Reset>>();
    both::<QueuePair<'_, Uc, state::Rtr>>();
    both::<QueuePair<'_, Ud, state::Rts>>();
    both::<QueuePair<'_, Rc, state::Rts, Extended>>();
    both::<DynQueuePair<'_, Rc>>();
    both::<Arena<MemoryRegion<'_>>>();
    both::<Peers<'_>>();
    both::<Prepared<'_, Rc>>();
    both::<BatchStorage<16, 4>>();
    both::<RecvStorage<16, 4>>();
    both::<Pages>();
};

// Values, errors.
const _: () = {
    both::<Error>();
    both::<VerbError>();
    both::<PostError>();
    both::<PollError>();
    both::<WcError>();
    both::<RangeError>();
    both::<TransitionError<QueuePair<'_>>>();
    both::<CloseError<Context>>();
    both::<WorkCompletion>();
    both::<Completion<'_>>();
    both::<DeviceAttr>();
    both::<PortAttr>();
    both::<GidEntry>();
    both::<QpAttr>();
    both::<Endpoint>();
    both::<Connection>();
    both::<RemoteRegion>();
    both::<RemoteSlice>();
    both::<RemoteU64>();
    both::<CqId>();
    both::<attr::RcRtrAttr>();
    both::<attr::RcRtsAttr>();
    both::<attr::RcSqdAttr>();
    both::<MrSlice<'_>>();
    send::<CompletionQueueBuilder<'_>>();
    send::<QueuePairBuilder<'_, Rc>>();
};

// What shares its parents can be stored.
const _: () = {
    owned::<OwnedQp>();
    owned::<MemoryRegion<'static>>();
    owned::<Error>();
};

// What the data path carries stays small.
const _: () = {
    assert!(size_of::<MrSlice<'_>>() == 16);
    assert!(size_of::<RemoteSlice>() == 16);
    assert!(size_of::<RemoteU64>() == 16);
    assert!(size_of::<WorkCompletion>() == size_of::<sys::ibv_wc>());
    assert!(size_of::<Result<(), PostError>>() <= 16);
    assert!(size_of::<Result<(), RangeError>>() <= 32);
};

#[test]
fn types_are_as_documented() {
    // the assertions above are the test; these hold for what callers catch panics around
    const fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}
    unwinds::<Endpoint>();
    unwinds::<RemoteRegion>();
}
