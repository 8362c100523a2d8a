//! Completion events: armed, raised, waited for, acknowledged.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibv::sys::{IBV_WC_WR_FLUSH_ERR, ibv_wc};
use ibv::{Arm, CompletionChannel, CompletionQueue, Context, Error, WorkCompletion};
use nullhca::hca;
use support_null::*;

fn queue<'a>(ctx: &'a Context, channel: &'a CompletionChannel<'a>) -> CompletionQueue<'a> {
    CompletionQueue::builder(ctx, 16).channel(channel).comp_vector(1).build().unwrap()
}

#[test]
fn an_armed_queue_raises_one_event() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let (cq, other) = (queue(&ctx, &channel), queue(&ctx, &channel));
    assert_ne!(cq.id(), other.id());
    hca().complete(cq.as_ptr(), ibv_wc::default());
    assert_eq!(channel.try_event().unwrap(), None);
    cq.arm(Arm::Any).unwrap();
    other.arm(Arm::Any).unwrap();
    hca().complete(other.as_ptr(), ibv_wc::default());
    hca().complete(cq.as_ptr(), ibv_wc::default());
    hca().complete(cq.as_ptr(), ibv_wc::default());
    assert_eq!(channel.try_event().unwrap(), Some(other.id()));
    assert_eq!(channel.wait().unwrap(), cq.id());
    assert_eq!(channel.try_event().unwrap(), None);
    assert_eq!(cq.poll(&mut [WorkCompletion::default(); 8]).unwrap().len(), 3);
    // each is acknowledged as it is read
    assert_eq!((hca().events(cq.as_ptr()), hca().events(other.as_ptr())), ((1, 1), (1, 1)));
}

#[test]
fn solicited_completions_and_errors_raise_events_of_their_own() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    cq.arm(Arm::Solicited).unwrap();
    hca().complete(cq.as_ptr(), ibv_wc::default());
    assert_eq!(channel.try_event().unwrap(), None);
    hca().complete_solicited(cq.as_ptr(), ibv_wc::default());
    assert_eq!(channel.try_event().unwrap(), Some(cq.id()));
    cq.arm(Arm::Solicited).unwrap();
    hca().complete(cq.as_ptr(), ibv_wc { status: IBV_WC_WR_FLUSH_ERR, ..Default::default() });
    assert_eq!(channel.try_event().unwrap(), Some(cq.id()));
}

#[test]
fn a_queue_without_a_channel_cannot_be_armed() {
    let ctx = open();
    let cq = ctx.create_cq(16).unwrap();
    assert!(cq.channel().is_none());
    assert!(matches!(cq.arm(Arm::Any), Err(Error::Invalid { .. })));
    assert_eq!(hca().count("ibv_req_notify_cq"), 0);
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    hca().fail("ibv_req_notify_cq", libc::EOPNOTSUPP);
    assert_eq!(cq.arm(Arm::Any).unwrap_err().errno(), Some(libc::EOPNOTSUPP));
}

#[test]
fn a_queue_goes_with_events_unread() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    for _ in 0..3 {
        hca().raise_event(cq.as_ptr());
    }
    channel.wait().unwrap();
    drop(cq);
    assert_eq!(channel.try_event().unwrap(), None);
    assert_eq!(channel.wait_timeout(Duration::from_millis(1)).unwrap(), None);
    let next = queue(&ctx, &channel);
    hca().raise_event(next.as_ptr());
    assert_eq!(channel.wait().unwrap(), next.id());
    drop(next);
    channel.close().unwrap();
}

#[test]
fn waiting_has_an_end() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    let start = Instant::now();
    assert_eq!(channel.wait_timeout(Duration::from_millis(30)).unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(channel.wait_timeout(Duration::ZERO).unwrap(), None);
    hca().raise_event(cq.as_ptr());
    // one that is there is taken whatever the time
    assert_eq!(channel.wait_timeout(Duration::ZERO).unwrap(), Some(cq.id()));
    hca().raise_event(cq.as_ptr());
    assert_eq!(channel.wait_timeout(Duration::MAX).unwrap(), Some(cq.id()));
    // one that comes meanwhile
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            hca().raise_event(cq.as_ptr());
        });
        assert_eq!(channel.wait_timeout(Duration::from_secs(60)).unwrap(), Some(cq.id()));
    });
}

/// Waiting takes one system call, as C's: the descriptor blocks for as long as only waiting is done.
#[test]
fn a_channel_blocks_for_who_waits_and_not_for_who_tries() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    let blocks = || {
        // SAFETY: the channel is alive, and its descriptor open.
        let flags = unsafe { libc::fcntl((*channel.as_ptr()).fd, libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    };
    assert_eq!((channel.try_event().unwrap(), blocks()), (None, false));
    for _ in 0..2 {
        hca().raise_event(cq.as_ptr());
        assert_eq!((channel.wait().unwrap(), blocks()), (cq.id(), true));
        assert_eq!((channel.wait_timeout(Duration::from_millis(1)).unwrap(), blocks()), (None, false));
    }
}

#[test]
fn who_tries_does_not_wait_for_another_who_waits() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| channel.wait().unwrap());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            assert_eq!(channel.try_event().unwrap(), None);
        }
        assert!(!waiter.is_finished());
        hca().raise_event(cq.as_ptr());
        assert_eq!(waiter.join().unwrap(), cq.id());
    });
    // two who wait get an event each
    std::thread::scope(|scope| {
        let waiters = [scope.spawn(|| channel.wait().unwrap()), scope.spawn(|| channel.wait().unwrap())];
        std::thread::sleep(Duration::from_millis(20));
        hca().raise_event(cq.as_ptr());
        hca().raise_event(cq.as_ptr());
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == cq.id()));
    });
    assert_eq!(channel.try_event().unwrap(), None);
}

#[test]
fn a_channel_gives_a_descriptor_to_wait_on_and_not_to_read() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    let fd = channel.as_fd().as_raw_fd();
    let readable = || {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    };
    assert!(!readable());
    hca().raise_event(cq.as_ptr());
    assert!(readable());
    // reading an event away would leave it unacknowledged, and the queue's destruction waiting for ever
    let mut event = [0; 64];
    let mut file = std::fs::File::from(channel.as_fd().try_clone_to_owned().unwrap());
    assert!(file.read(&mut event).is_err());
    assert!(channel.try_event().unwrap().is_some());
    assert!(!readable());
}

#[test]
fn a_signal_does_not_end_the_waiting() {
    extern "C" fn ignore(_: i32) {}
    static DONE: AtomicBool = AtomicBool::new(false);
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    // the read is interrupted
    hca().script("ibv_get_cq_event", &[libc::EINTR, libc::EINTR]);
    hca().raise_event(cq.as_ptr());
    assert_eq!(channel.wait().unwrap(), cq.id());
    // the poll is, by a signal without SA_RESTART
    // SAFETY: a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: no precondition.
    let waiter = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(2));
                // SAFETY: the thread waits for this one to end.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
            }
            DONE.store(true, Ordering::Release);
            hca().raise_event(cq.as_ptr());
        });
        assert_eq!(channel.wait().unwrap(), cq.id());
        assert!(DONE.load(Ordering::Acquire), "a signal alone must not end it");
    });
    let start = Instant::now();
    hca().script("ibv_get_cq_event", &[libc::EINTR; 3]);
    assert_eq!(channel.wait_timeout(Duration::from_millis(20)).unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_channel_that_cannot_be_read_says_so() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    hca().fail("ibv_get_cq_event", libc::EIO);
    assert_eq!(channel.try_event().unwrap_err().errno(), Some(libc::EIO));
    hca().fail("ibv_get_cq_event", libc::EIO);
    assert_eq!(channel.wait().unwrap_err().errno(), Some(libc::EIO));
    hca().fail("ibv_get_cq_event", libc::EIO);
    assert_eq!(channel.wait_timeout(Duration::MAX).unwrap_err().errno(), Some(libc::EIO));
}

/// It waited for ever, at full speed.
#[test]
fn waiting_ends_when_the_device_is_gone() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    hca().unplug(channel.as_ptr());
    assert_eq!(channel.wait().unwrap_err().errno(), Some(libc::EIO));
    assert_eq!(channel.wait_timeout(Duration::MAX).unwrap_err().errno(), Some(libc::EIO));
}

#[test]
fn the_loop_that_loses_none() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = queue(&ctx, &channel);
    const ALL: u64 = 5000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for wr_id in 0..ALL {
                hca().complete(cq.as_ptr(), ibv_wc { wr_id, ..Default::default() });
            }
        });
        let mut wcs = [WorkCompletion::default(); 4];
        let mut seen = 0;
        while seen < ALL {
            cq.arm(Arm::Any).unwrap();
            let done = cq.poll(&mut wcs).unwrap();
            if done.is_empty() {
                let event = channel.wait_timeout(Duration::from_secs(60)).unwrap();
                assert_eq!(event, Some(cq.id()), "lost after {seen}");
            }
            for wc in done {
                assert_eq!(wc.id(), seen);
                seen += 1;
            }
        }
    });
    let (read, acknowledged) = hca().events(cq.as_ptr());
    assert_eq!(read, acknowledged);
}
