//! Many threads, while another one is the device.

use std::thread;

use ibv::qp::{Connected, OwnReceives, RdmaWrite};
use ibv::{
    BatchStorage, Context, InitAttr, Inline, LocalPort, Rc, Transport, Uc, recv, send, write, write_imm,
};

use crate::rig::{Parts, completed, contents, next_of, pattern, scenario, success};

const THREADS: u8 = 4;
const ROUNDS: usize = 300;
const LEN: usize = 3000;

fn parts(ctx: &Context, local: LocalPort) -> Parts<'_> {
    let pd = ctx.alloc_pd().unwrap();
    Parts { local, pd, a_cq: ctx.create_cq(256).unwrap(), b_cq: ctx.create_cq(256).unwrap() }
}

/// Messages of all lengths one by one, and windows of WRITEs.
fn hammer<T: Connected + RdmaWrite + OwnReceives + Transport<Init = InitAttr>>(parts: &Parts<'_>, seed: u8) {
    let (from, to) = (parts.filled(LEN, seed), parts.open(LEN));
    let remote = to.remote_region();
    let bytes = pattern(LEN, seed);
    let [a, b] = parts.pair::<T>();
    let mut storage = BatchStorage::<9>::new();
    for round in 0..ROUNDS {
        let (start, len) = (round % 50, 1 + round * 37 % (LEN - 50));
        to.write(0, &[0; LEN]).unwrap();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(start..start + len).unwrap()).signaled().id(2)).unwrap();
        assert_eq!(completed(&parts.b_cq, 1).result().unwrap().byte_len(), Some(len as u32));
        success(&parts.a_cq, 2);
        let got = contents(&to);
        assert!(got[..len] == bytes[start..start + len] && got[len..].iter().all(|&byte| byte == 0));

        b.post_recv(recv(ibv::Empty).id(3)).unwrap();
        let mut batch = a.batch(&mut storage);
        for part in 0..8 {
            let range = part * 300..part * 300 + 300;
            batch.push(write(from.slice(range.clone()).unwrap(), remote.slice(range).unwrap())).unwrap();
        }
        batch.push(write_imm(Inline(b""), remote.slice(0..0).unwrap(), 5).signaled().id(4)).unwrap();
        batch.submit().unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
        assert!(contents(&to)[..2400] == bytes[..2400]);
    }
}

#[test]
fn each_thread_has_its_own() {
    scenario(|rig| {
        thread::scope(|scope| {
            for seed in 0..THREADS {
                scope.spawn(move || {
                    let parts = parts(&rig.ctx, rig.local);
                    if seed % 2 == 0 { hammer::<Rc>(&parts, seed) } else { hammer::<Uc>(&parts, seed) }
                });
            }
        });
    });
}

#[test]
fn objects_come_and_go_meanwhile() {
    scenario(|rig| {
        thread::scope(|scope| {
            scope.spawn(move || hammer::<Rc>(&parts(&rig.ctx, rig.local), 9));
            scope.spawn(move || {
                for round in 0..100 {
                    let parts = parts(&rig.ctx, rig.local);
                    let (from, to) = (parts.filled(64, round), parts.zeros(64));
                    let [a, b] = parts.pair::<Rc>();
                    for id in 0..4 {
                        b.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
                        a.post(send(from.slice(..).unwrap()).signaled().id(id)).unwrap();
                    }
                    next_of(&parts.a_cq, 4);
                    // requests, receives and completions are left behind
                    b.post_recv(recv(to.slice(..).unwrap()).id(9)).unwrap();
                    a.post(send(from.slice(..).unwrap()).signaled().id(9)).unwrap();
                }
            });
        });
    });
}
