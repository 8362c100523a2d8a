//! Whatever is posted, full queues, lists that are cut, errors and resets among it: extended queue pairs do what basic
//! ones do, be they trusted with `ibv_wr_*` or not.

use std::sync::Arc;

use ibv::{
    AddressHandle, AddressVector, Bare, Basic, BatchStorage, Empty, Endpoint, Extended, Inline, MemoryRegion,
    MemoryWindow, MrSlice, PostError, QueuePairBuilder, Rc, Remote, RemoteAccess, RemoteRegion, RemoteSlice,
    SendRequest, Type2, Ud, UdInitAttr, WcOpcode, WcStatus, WorkCompletion, bind_mw, cmp_swp, fetch_add,
    local_inv, read, recv, send, send_imm, write, write_imm,
};

use super::rig::{Cq, Qp, Random, Rig, drain, rounds};

const DEPTH: u64 = 24;
const INLINE: usize = 60;
const RECEIVES: u32 = 256;
/// Ids from here on are receives'.
const RECEIVED: u64 = 1 << 32;
/// A region has what is sent, where READs and atomics return to, what peers reach, and room for messages.
const PART: usize = 4096;

enum Post {
    Basic(Qp<Rc, Basic>),
    Extended(Qp<Rc, Extended>),
}

struct Side {
    /// None during a transition.
    qp: Option<Post>,
    mr: Arc<MemoryRegion<'static, Remote>>,
    cq: Cq<Bare>,
    window: MemoryWindow<'static, Type2>,
    receives: u32,
}

type Done = (u64, WcStatus, Option<(WcOpcode, Option<u32>, Option<u32>)>);

fn said(wc: &WorkCompletion) -> Done {
    let done = wc.result().ok();
    (wc.id(), wc.status(), done.map(|done| (done.opcode(), done.byte_len(), done.imm())))
}

/// A request, but for its kind.
#[derive(Clone, Copy)]
struct Plan {
    id: u64,
    signaled: bool,
    fence: bool,
    from: usize,
    len: usize,
    to: usize,
    imm: Option<u32>,
}

impl Plan {
    fn data(&self, side: &Side) -> MrSlice<'static> {
        side.slice(self.from, self.len)
    }

    /// Elements of which some have no bytes.
    fn parts<const N: usize>(&self, side: &Side) -> [MrSlice<'static>; N] {
        std::array::from_fn(|at| {
            side.slice(self.from + at, if (self.id as usize + at) % 3 == 0 { 0 } else { 7 })
        })
    }

    fn to(&self, side: &Side) -> RemoteSlice {
        let at = 2 * PART + self.to;
        side.mr.remote_region().slice(at..at + 2 * INLINE).unwrap()
    }
}

impl Side {
    fn slice(&self, at: usize, len: usize) -> MrSlice<'static> {
        self.mr.slice(at..at + len).unwrap().detach()
    }

    fn post<R: SendRequest<'static, Rc> + Copy>(&mut self, requests: &[R]) -> Result<(), PostError> {
        match self.qp.as_mut().unwrap() {
            Post::Extended(qp) => qp.post_list(requests),
            Post::Basic(qp) => {
                let mut storage = BatchStorage::<64, 5>::new();
                let mut batch = qp.batch(&mut storage);
                for request in requests {
                    batch.push(*request)?;
                }
                batch.submit()
            }
        }
    }

    fn post_one(&mut self, request: impl SendRequest<'static, Rc>) -> Result<(), PostError> {
        match self.qp.as_mut().unwrap() {
            Post::Extended(qp) => qp.post(request),
            Post::Basic(qp) => qp.post(request),
        }
    }

    fn fill_receives(&mut self) {
        while self.receives < RECEIVES {
            let at = 3 * PART + self.receives as usize * 8 % (PART - 128);
            let request = recv(self.slice(at, 128)).id(RECEIVED + u64::from(self.receives));
            match self.qp.as_ref().unwrap() {
                Post::Extended(qp) => qp.post_recv(request),
                Post::Basic(qp) => qp.post_recv(request),
            }
            .unwrap();
            self.receives += 1;
        }
    }

    fn restart(&mut self, rig: &Rig) {
        self.qp = Some(match self.qp.take().unwrap() {
            Post::Basic(qp) => Post::Basic(rig.to_itself(qp.reset().unwrap())),
            Post::Extended(qp) => Post::Extended(rig.to_itself(qp.reset().unwrap())),
        });
        self.window = MemoryWindow::new(&rig.pd).unwrap();
        self.receives = 0;
        drain(&self.cq);
        self.fill_receives();
    }

    /// What has completed, and what the memory holds.
    fn outcome(&mut self) -> (Vec<Done>, Vec<u8>) {
        let wcs = drain(&self.cq);
        self.receives -= wcs.iter().filter(|wc| wc.id() >= RECEIVED).count() as u32;
        let mut bytes = vec![0; 4 * PART];
        self.mr.read(0, &mut bytes).unwrap();
        (wcs.iter().map(said).collect(), bytes)
    }
}

fn sides(rig: &Rig, trusts: bool, signal_all: bool) -> Vec<Side> {
    let side = |make: &dyn Fn(QueuePairBuilder<'static, Rc>) -> Post| {
        let (mr, cq) = (rig.region(4 * PART), rig.bare(2048));
        mr.write(0, &(0..PART).map(|at| at as u8 ^ (at >> 8) as u8).collect::<Vec<_>>()).unwrap();
        let builder = QueuePairBuilder::new(&rig.pd, &cq, &cq).send_depth(DEPTH as u32).recv_depth(RECEIVES);
        let builder = builder.send_sges(4).inline(INLINE as u32).signal_all(signal_all);
        let window = MemoryWindow::new(&rig.pd).unwrap();
        let mut side = Side { qp: Some(make(builder)), mr, cq, window, receives: 0 };
        side.fill_receives();
        side
    };
    let mut sides = vec![
        side(&|builder| Post::Basic(rig.to_itself(builder.build().unwrap()))),
        side(&|builder| Post::Extended(rig.to_itself(builder.extended().build().unwrap()))),
    ];
    if trusts {
        sides.push(side(&|builder| {
            #[expect(unsafe_code, reason = "trusting the provider is")]
            // SAFETY: `all_alike` counts.
            let builder = unsafe { builder.extended().trust_wr() };
            Post::Extended(rig.to_itself(builder.build().unwrap()))
        }));
    }
    sides
}

fn all_alike(trusts: bool) {
    let rig = Rig::new();
    let mut random = Random::new(31 + u64::from(trusts));
    let bytes: Vec<u8> = (0..2 * INLINE).map(|at| 0xff - at as u8).collect();
    let (mut ok, mut cut, mut refused) = (0, 0, 0);
    for signal_all in [false, true] {
        let mut sides = sides(&rig, trusts, signal_all);
        // what was posted, and what of that is known to be done
        let (mut posted, mut done) = (0, 0);
        for round in 0..rounds(300, 3000) {
            // who trusts, counts
            let room = if trusts { DEPTH - (posted - done) } else { 60 } as usize;
            let count = random.below(room + 1);
            let mut plans: Vec<_> = (posted..)
                .take(count)
                .map(|id| Plan {
                    id,
                    signaled: random.below(4) != 0,
                    fence: random.below(8) == 0,
                    from: random.below(PART - 128),
                    len: random.below(INLINE + 1),
                    to: 8 * random.below((PART - 2 * INLINE) / 8),
                    imm: random.coin().then(|| random.word() as u32),
                })
                .collect();
            if let (true, Some(last)) = (count == room, plans.last_mut()) {
                last.signaled = true;
            }
            // no element too many, nor byte, but in some lists
            let spoiled = if random.below(8) == 0 { random.below(60) } else { usize::MAX };
            if let Some(plan) = plans.get_mut(spoiled) {
                plan.len = INLINE + 1 + random.below(INLINE);
            }
            let is_spoiled = spoiled < count;
            let (kind, full) = (random.below(15), sides.len());
            macro_rules! list {
                (|$plan:ident, $side:ident| $request:expr) => {
                    list!(plans, |$plan, $side| $request)
                };
                ($plans:expr, |$plan:ident, $side:ident| $request:expr) => {{
                    let mut results = Vec::with_capacity(full);
                    for side in &mut sides {
                        let $side = &*side;
                        let requests: Vec<_> = $plans
                            .iter()
                            .map(|$plan| {
                                let mut request = $request.id($plan.id);
                                if $plan.signaled {
                                    request = request.signaled();
                                }
                                if $plan.fence {
                                    request = request.fence();
                                }
                                request
                            })
                            .collect();
                        results.push(side.post(&requests));
                    }
                    results
                }};
            }
            let inline = |plan: &Plan| Inline(&bytes[..plan.len]);
            let word = |plan: &Plan, side: &Side| side.mr.u64_at(PART + plan.to).unwrap().detach();
            let at = |plan: &Plan, side: &Side| side.mr.remote_region().u64_at(2 * PART + plan.to).unwrap();
            let one = &plans[..count.min(1)];
            let results = match kind {
                0 => list!(|plan, side| send(plan.data(side))),
                1 => list!(|plan, side| send_imm(plan.parts::<4>(side), plan.imm)),
                2 => list!(|plan, _side| send_imm(inline(plan), plan.imm).solicited()),
                3 => list!(|plan, side| write(inline(plan), plan.to(side))),
                4 => list!(|plan, side| write_imm(inline(plan), plan.to(side), plan.imm)),
                5 => list!(|plan, side| write(plan.data(side), plan.to(side))),
                6 => list!(|plan, side| write(plan.parts::<3>(side), plan.to(side))),
                7 => list!(|plan, side| read(side.slice(PART + plan.from, plan.len), plan.to(side))),
                8 => list!(|plan, side| cmp_swp(word(plan, side), at(plan, side), 0, plan.id)),
                9 => list!(|plan, side| fetch_add(word(plan, side), at(plan, side), plan.id)),
                10 => list!(|plan, _side| send(Empty)),
                11 => list!(one, |plan, side| write(plan.parts::<5>(side), plan.to(side))),
                12 if random.below(4) == 0 => {
                    let nowhere = RemoteRegion { addr: 0, len: PART as u64, rkey: 0 }.slice(..).unwrap();
                    list!(|plan, _side| write(inline(plan), nowhere))
                }
                _ if one.is_empty() => continue,
                _ => sides
                    .iter_mut()
                    .map(|side| {
                        let mut window = MemoryWindow::new(&rig.pd).unwrap();
                        std::mem::swap(&mut window, &mut side.window);
                        let result = if let Ok(invalidate) = local_inv(&mut window) {
                            side.post_one(invalidate.id(posted).signaled())
                        } else {
                            let bind = bind_mw(&mut window, &side.mr, .., RemoteAccess::READ).unwrap();
                            side.post_one(bind.id(posted).signaled())
                        };
                        side.window = window;
                        result
                    })
                    .collect(),
            };
            for result in &results {
                assert_eq!(result, &results[0], "kind {kind} of {count}, {spoiled}, round {round}");
            }
            match results[0] {
                Ok(()) => {
                    posted += if kind > 12 || kind == 11 { one.len() } else { count } as u64;
                    ok += 1;
                }
                Err(PostError::Device { errno: libc::ENOMEM, accepted: Some(accepted) }) => {
                    assert!(!trusts);
                    posted += u64::from(accepted);
                    cut += 1;
                }
                Err(PostError::InlineTooLong { max: _ }) => {
                    assert!(is_spoiled, "{kind} {count} {spoiled}");
                    refused += 1;
                }
                Err(PostError::TooManySges { max: 4 }) => refused += 1,
                Err(error) => panic!("kind {kind}, round {round}: {error:?}"),
            }
            if random.below(3) == 0 {
                rig.hca.run_until_idle();
                let outcomes: Vec<_> = sides.iter_mut().map(Side::outcome).collect();
                for (wcs, memory) in &outcomes {
                    let differing = wcs.iter().zip(&outcomes[0].0).find(|(one, other)| one != other);
                    assert_eq!(differing, None, "kind {kind}, round {round}");
                    assert_eq!(wcs.len(), outcomes[0].0.len(), "kind {kind}, round {round}");
                    assert!(*memory == outcomes[0].1, "kind {kind}, round {round}: memory differs");
                }
                let sends = || outcomes[0].0.iter().filter(|(id, ..)| *id < RECEIVED);
                done = sends().next_back().map_or(done, |(id, ..)| id + 1);
                let failed = sends().any(|(_, status, _)| *status != WcStatus::SUCCESS);
                if (failed && random.coin()) || random.below(40) == 0 {
                    sides.iter_mut().for_each(|side| side.restart(&rig));
                    done = posted;
                }
                if !failed {
                    sides.iter_mut().for_each(Side::fill_receives);
                }
            }
        }
    }
    println!("{ok} taken, {cut} cut, {refused} refused");
    assert!(ok > 0 && refused > 0 && (cut > 0) != trusts);
    rig.no_violations();
}

#[test]
fn untrusted_ones() {
    all_alike(false);
}

#[test]
fn trusted_ones() {
    all_alike(true);
}

/// Random lists of datagrams, of which some have too much data; nobody counts but the trusted.
#[test]
fn datagrams() {
    const QKEY: u32 = 0x11;
    let rig = Rig::new();
    let to_us = Endpoint { lid: rig.local.lid, qpn: 0, psn: 0, gid: rig.local.gid };
    let address = AddressVector::to_peer(&rig.local, &to_us).unwrap();
    let ah = AddressHandle::new(&rig.pd, &address).unwrap();
    let (mr, cqs) = (rig.region(PART), [(); 3].map(|()| rig.bare(1024)));
    let builder = |at: usize| {
        let builder = QueuePairBuilder::<Ud>::new(&rig.pd, &cqs[at], &cqs[at]).send_depth(DEPTH as u32);
        builder.recv_depth(RECEIVES).inline(INLINE as u32)
    };
    let attr = UdInitAttr::new(1, QKEY);
    let basic = builder(0).build().unwrap().init(attr).unwrap().activate(0).unwrap();
    let mut extended = builder(1).extended().build().unwrap().init(attr).unwrap().activate(0).unwrap();
    #[expect(unsafe_code, reason = "trusting the provider is")]
    // SAFETY: no list is longer than `DEPTH`, and each has completed before the next.
    let trusted = unsafe { builder(2).extended().trust_wr() };
    let mut trusted = trusted.build().unwrap().init(attr).unwrap().activate(0).unwrap();
    let numbers = [basic.qp_num(), extended.qp_num(), trusted.qp_num()];
    let bytes: Vec<u8> = (0..=INLINE).map(|at| at as u8).collect();
    let mut random = Random::new(41);
    let (mut cut, mut refused, mut have) = (0, 0, [0; 3]);
    for round in 0..rounds(200, 1000) {
        let count = random.below(if round % 2 == 0 { DEPTH as usize } else { 80 } + 1);
        let spoiled = if random.below(4) == 0 { random.below(80) } else { usize::MAX };
        let plans: Vec<_> = (0..count)
            .map(|at| {
                let len = if at == spoiled { INLINE + 1 } else { random.below(INLINE + 1) };
                (at as u64, len, random.coin().then(|| random.word() as u32))
            })
            .collect();
        let list = |which: usize| -> Vec<_> {
            let request = |&(id, len, imm): &(u64, usize, Option<u32>)| {
                send_imm(Inline(&bytes[..len]), imm).to(&ah, numbers[which], QKEY).id(id).signaled()
            };
            plans.iter().map(request).collect()
        };
        let room =
            |which: usize| recv(mr.slice(which * 128..(which + 1) * 128).unwrap().detach()).id(RECEIVED);
        (have[0]..80).for_each(|_| basic.post_recv(room(0)).unwrap());
        (have[1]..80).for_each(|_| extended.post_recv(room(1)).unwrap());
        (have[2]..80).for_each(|_| trusted.post_recv(room(2)).unwrap());
        let mut storage = BatchStorage::<80>::new();
        let mut batch = basic.batch(&mut storage);
        let pushed = list(0).into_iter().try_for_each(|request| batch.push(request));
        let result = pushed.and_then(|()| batch.submit());
        assert_eq!(extended.post_list(&list(1)), result, "round {round}");
        let trusts = count <= DEPTH as usize;
        if trusts {
            assert_eq!(trusted.post_list(&list(2)), result, "round {round}");
        }
        match result {
            Ok(()) => {}
            Err(PostError::InlineTooLong { .. }) => refused += 1,
            Err(error) => {
                assert!(error.is_queue_full() && error.accepted().unwrap() >= DEPTH as u32);
                cut += 1;
            }
        }
        rig.hca.run_until_idle();
        let said = [0, 1, 2].map(|which: usize| drain(&cqs[which]).iter().map(said).collect::<Vec<_>>());
        have =
            [0, 1, 2].map(|which: usize| 80 - said[which].iter().filter(|(id, ..)| *id == RECEIVED).count());
        let data = [0, 128, 256].map(|at| {
            let mut data = [0; 128];
            mr.read(at, &mut data).unwrap();
            mr.write(at, &[0; 128]).unwrap();
            data
        });
        assert_eq!((&said[1], data[1]), (&said[0], data[0]), "round {round}");
        assert!(!trusts || (&said[2], data[2]) == (&said[0], data[0]), "round {round}");
    }
    assert!(cut > 0 && refused > 0);
    rig.no_violations();
}
