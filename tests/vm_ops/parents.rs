//! Borrowed, shared and mixed parents.

use std::sync::Arc;
use std::thread;

use ibv::{
    CompletionChannel, CompletionQueue, Connection, Context, Empty, Endpoint, InitAttr, Inline, LocalPort,
    MemoryRegion, OwnedQp, Pages, ProtectionDomain, QueuePairBuilder, Rc, Remote, RemoteAccess, random_psn,
    recv, send, write_imm,
};

use crate::rig::{Rig, checked, completed, connect, contents, open_init, scenario, success};

/// A side of a connection that owns all that it is made of.
struct Session {
    qp: OwnedQp<Rc>,
    mr: MemoryRegion<'static, Remote>,
    cq: Arc<CompletionQueue<'static>>,
}

impl Session {
    fn pair(ctx: &Arc<Context>, local: LocalPort) -> [Self; 2] {
        let pd = Arc::new(ProtectionDomain::new(ctx).unwrap());
        let made = [1, 2].map(|_| {
            let cq = Arc::new(CompletionQueue::new(ctx, 64).unwrap());
            let builder = QueuePairBuilder::<Rc>::new(&pd, &cq, Arc::clone(&cq)).inline(64);
            let qp = builder.build().unwrap().init(open_init(&local)).unwrap();
            let mr = MemoryRegion::remote(&pd, Pages::new(64).unwrap(), RemoteAccess::WRITE).unwrap();
            (qp, mr, cq, random_psn())
        });
        let ends: [Endpoint; 2] = [0, 1].map(|side| made[side].0.endpoint(&local, made[side].3));
        let mut peers = ends.into_iter().rev();
        made.map(|(qp, mr, cq, psn)| {
            let qp = qp.connect(&Connection::new(local, psn, peers.next().unwrap())).unwrap();
            Self { qp, mr, cq }
        })
    }

    /// Writes to the peer's memory, and tells it.
    fn tell(&self, peer: &ibv::RemoteRegion, text: &[u8]) {
        self.qp.post(write_imm(Inline(text), peer.slice(..).unwrap(), 5).signaled().id(1)).unwrap();
        success(&self.cq, 1);
    }

    fn hear(&self) -> Vec<u8> {
        assert_eq!(completed(&self.cq, 2).result().unwrap().imm(), Some(5));
        contents(&self.mr)
    }
}

#[test]
fn owned_sessions_move_between_threads() {
    checked(|| {
        let Rig { ctx, local } = Rig::open();
        let ctx = Arc::new(ctx);
        let [a, b] = Session::pair(&ctx, local);
        // only the sessions keep it open
        drop(ctx);
        let place = b.mr.remote_region();
        let listener = thread::spawn(move || {
            b.qp.post_recv(recv(Empty).id(2)).unwrap();
            assert_eq!(&b.hear()[..5], b"hello");
            b
        });
        let teller = thread::spawn(move || {
            a.tell(&place, b"hello");
            a
        });
        let b = listener.join().unwrap();
        let a = teller.join().unwrap();
        // the fields of one go while the other lives on
        let Session { qp, mr, cq } = a;
        drop(cq);
        drop(mr);
        drop(qp);
        assert_eq!(&contents(&b.mr)[..5], b"hello");
    });
}

#[test]
fn parents_mix() {
    checked(|| {
        let Rig { ctx, local } = Rig::open();
        let ctx = Arc::new(ctx);
        // a domain that shares, queues that borrow, a channel on the stack; and the reverse
        let shared_pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
        let borrowed_pd = ctx.alloc_pd().unwrap();
        let channel = ctx.create_comp_channel().unwrap();
        let shared_channel = Arc::new(CompletionChannel::new(&ctx).unwrap());
        let borrowed_cq = CompletionQueue::builder(&ctx, 64).channel(&channel).build().unwrap();
        let shared_cq =
            Arc::new(CompletionQueue::builder(Arc::clone(&ctx), 64).channel(shared_channel).build().unwrap());
        let to = MemoryRegion::local(&borrowed_pd, vec![0; 16]).unwrap();
        let a = QueuePairBuilder::<Rc>::new(&shared_pd, &borrowed_cq, &shared_cq).inline(16).build().unwrap();
        let b = borrowed_pd.create_qp::<Rc>(&shared_cq, &borrowed_cq).build().unwrap();
        let [a, b] = connect(&local, [a, b].map(|qp| qp.init(InitAttr::new(local.port)).unwrap()));
        drop(shared_pd);
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"mixed")).signaled().id(2)).unwrap();
        // the sends of one and the receives of the other complete on one queue
        let mut ids = [crate::rig::next(&borrowed_cq), crate::rig::next(&borrowed_cq)].map(|wc| {
            assert!(wc.result().is_ok());
            wc.id()
        });
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        assert_eq!(&contents(&to)[..5], b"mixed");
    });
}

#[test]
fn closing_one_by_one_reports_success() {
    scenario(|rig| {
        let other = Rig::open();
        let pd = other.ctx.alloc_pd().unwrap();
        let cq = other.ctx.create_cq(64).unwrap();
        let mr = pd.alloc_local(64).unwrap();
        let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
        qp.close().unwrap();
        mr.close().unwrap();
        cq.close().unwrap();
        pd.close().unwrap();
        other.ctx.create_comp_channel().unwrap().close().unwrap();
        other.ctx.close().unwrap();
        assert!(rig.ctx.alloc_pd().is_ok());
    });
}
