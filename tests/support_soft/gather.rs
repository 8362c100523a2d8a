//! Several elements by the extended backend, which Soft-RoCE can't be trusted with, and big regions.

use ibv::state::Init;
use ibv::{Extended, InitAttr, QueuePair, Rc, Uc, read, recv, send, send_imm, write, write_imm};

use crate::rig::{
    Parts, completed, connect, contents, next_of, open_init, pattern, quiet, roomy_extended, scenario,
    success,
};

fn inits<'p, T: ibv::Transport<Init = InitAttr>>(
    parts: &'p Parts<'p>,
) -> [QueuePair<'p, T, Init, Extended>; 2] {
    [parts.a_builder(), parts.b_builder()]
        .map(|builder| roomy_extended(builder).build().unwrap().init(open_init(&parts.local)).unwrap())
}

#[test]
fn rc_gathers_and_scatters() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(400), parts.open(400));
        let bytes = pattern(400, 5);
        ours.write(0, &bytes).unwrap();
        let [mut a, b] = connect(&rig.local, inits::<Rc>(&parts));
        let from = |range| ours.slice(range).unwrap();
        let to = |range| theirs.slice(range).unwrap();
        let remote = theirs.remote_region();

        // as many elements as the queue pair takes, one of them empty, of different lengths than at the receiver
        b.post_recv(recv([to(0..20), to(100..125), to(200..300)]).id(1)).unwrap();
        let elements = [from(0..10), from(50..50), from(100..130), from(200..205)];
        a.post(send(&elements[..]).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        assert_eq!(completed(&parts.b_cq, 1).result().unwrap().byte_len(), Some(45));
        let sent = [&bytes[0..10], &bytes[100..130], &bytes[200..205]].concat();
        let got = contents(&theirs);
        assert_eq!((&got[..20], &got[100..125]), (&sent[..20], &sent[20..]));
        assert_eq!(got[200..300], [0; 100]);

        b.post_recv(recv(ibv::Empty).id(3)).unwrap();
        a.post(write_imm(elements, remote.slice(30..75).unwrap(), 7).id(4)).unwrap();
        let scattered = [from(250..270), from(300..325)];
        a.post(read(scattered, remote.slice(30..75).unwrap()).fence().signaled().id(5)).unwrap();
        success(&parts.a_cq, 5);
        assert_eq!(completed(&parts.b_cq, 3).result().unwrap().imm(), Some(7));
        let got = contents(&ours);
        assert_eq!((&got[250..270], &got[300..325]), (&sent[..20], &sent[20..]));
        assert_eq!(contents(&theirs)[30..75], sent);

        // a list of them, around the ring
        for round in 0..10 {
            for id in 0..3 {
                b.post_recv(recv([to(0..5), to(10..300)]).id(id)).unwrap();
            }
            let list: [_; 3] = [[0, 20, 40], [60, 80, 100], [120, 140, 160]]
                .map(|starts| send_imm(starts.map(|at| from(at..at + 4)), round).signaled().id(9));
            a.post_list(&list).unwrap();
            next_of(&parts.a_cq, 3);
            for wc in next_of(&parts.b_cq, 3) {
                assert_eq!(
                    (wc.result().unwrap().byte_len(), wc.result().unwrap().imm()),
                    (Some(12), Some(round))
                );
            }
            let got = contents(&theirs);
            let last = [&bytes[120..124], &bytes[140..144], &bytes[160..164]].concat();
            assert_eq!((&got[..5], &got[10..17]), (&last[..5], &last[5..]));
        }
        quiet(&parts.a_cq);
        quiet(&parts.b_cq);
    });
}

#[test]
fn uc_gathers_and_scatters() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.filled(200, 3), parts.open(200));
        let bytes = pattern(200, 3);
        let [mut a, b] = connect(&rig.local, inits::<Uc>(&parts));
        let two = || [ours.slice(0..30).unwrap(), ours.slice(90..95).unwrap()];
        let sent = [&bytes[0..30], &bytes[90..95]].concat();
        b.post_recv(recv([theirs.slice(0..1).unwrap(), theirs.slice(50..100).unwrap()]).id(1)).unwrap();
        a.post(send(two()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        a.post(write(two(), theirs.remote_region().slice(120..).unwrap()).signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        let got = contents(&theirs);
        assert_eq!((got[0], &got[50..84], &got[120..155]), (sent[0], &sent[1..], &sent[..]));
    });
}

#[test]
fn a_region_of_more_than_two_gibibytes() {
    const LEN: usize = (5 << 29) + 4096; // 2.5 GiB, of which a few pages are touched
    scenario(|rig| {
        let parts = rig.parts();
        let (from, big) = (parts.filled(100, 8), parts.open(LEN));
        let [a, b] = parts.pair::<Rc>();
        let remote = big.remote_region();
        for at in [0, (1 << 31) - 50, LEN - 100] {
            a.post(write(from.slice(..).unwrap(), remote.slice(at..at + 100).unwrap()).id(1)).unwrap();
            let back = parts.zeros(100);
            {
                let [c, _d] = parts.pair::<Rc>();
                c.post(read(back.slice(..).unwrap(), remote.slice(at..at + 100).unwrap()).signaled().id(2))
                    .unwrap();
                success(&parts.a_cq, 2);
            }
            assert_eq!(contents(&back), pattern(100, 8));
        }
        b.post_recv(recv(big.slice(LEN - 4..).unwrap()).id(3)).unwrap();
        a.post(send(from.slice(..4).unwrap()).signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
        let mut end = [0; 4];
        big.read(LEN - 4, &mut end).unwrap();
        assert_eq!(end[..], pattern(4, 8));
    });
}
