//! Wrong addresses, ports and keys.

use ibv::qp::attr::{RcRtrAttr, UdInitModifyAttr};
use ibv::{
    AddressVector, Connection, Endpoint, Error, Gid, Grh, InitAttr, Mtu, QpState, Rc, Uc, Ud, UdInitAttr,
};

use crate::rig::{Rig, open_init, scenario};

fn errno(error: &Error) -> i32 {
    error.errno().unwrap_or_else(|| panic!("no verb failed: {error}"))
}

/// To ourselves, by that entry of the GID table.
fn path(rig: &Rig, sgid_index: u8) -> AddressVector {
    AddressVector::global(rig.local.port, Grh::new(rig.local.gid, sgid_index))
}

#[test]
fn connecting_by_an_empty_gid_entry() {
    scenario(|rig| {
        let parts = rig.parts();
        let qp = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let rtr = |path: &AddressVector| RcRtrAttr::new(path, Mtu::B1024, qp.qp_num(), 0);
        let (wrong, right) = (rtr(&path(rig, 200)), rtr(&path(rig, rig.local.gid_index.unwrap())));
        let (qp, error) = qp.rtr(wrong).unwrap_err().into_parts();
        assert!([libc::ENODATA, libc::EINVAL].contains(&errno(&error)), "{error}");
        assert!(error.to_string().contains("GID"), "{error}");
        // it comes back as it was, and goes on
        let qp = qp.unwrap();
        assert_eq!(qp.query().unwrap().state(), QpState::INIT);
        qp.rtr(right).unwrap();
    });
}

#[test]
fn connecting_without_a_grh() {
    scenario(|rig| {
        let parts = rig.parts();
        let qp = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        // a peer without a GID is addressed by its LID
        let peer = Endpoint { lid: 1, qpn: qp.qp_num(), psn: 0, gid: Gid::ZERO };
        let (qp, error) = qp.connect(&Connection::new(rig.local, 0, peer)).unwrap_err().into_parts();
        assert_eq!(errno(&error), libc::EINVAL);
        assert!(error.to_string().contains("RoCE needs a GRH"), "{error}");
        let qp = qp.unwrap();
        assert_eq!(qp.query().unwrap().state(), QpState::RESET, "several steps fail to Reset");
        // and the other way round
        let mut local = rig.local;
        local.gid_index = None;
        let peer = Endpoint { gid: rig.local.gid, ..peer };
        let qp = qp.init(open_init(&rig.local)).unwrap();
        let (qp, error) = qp.connect(&Connection::new(local, 0, peer)).unwrap_err().into_parts();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert_eq!(qp.unwrap().query().unwrap().state(), QpState::RESET);
    });
}

#[test]
fn values_out_of_range_are_told_before_the_device_sees_them() {
    scenario(|rig| {
        let parts = rig.parts();
        let init = || parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let peer = Endpoint { lid: 0, qpn: 17, psn: 0, gid: rig.local.gid };
        let good = Connection::new(rig.local, 0, peer);
        let wrong = [
            ("QPN", Connection::new(rig.local, 0, Endpoint { qpn: 1 << 24, ..peer })),
            ("PSN", Connection::new(rig.local, 0, Endpoint { psn: 1 << 24, ..peer })),
            ("PSN", Connection::new(rig.local, 1 << 24, peer)),
            ("RNR timer", good.min_rnr_timer(32)),
            ("timeout", good.timeout(32)),
            ("retry count", good.retry_cnt(8).rnr_retry(0)),
            ("RNR retry", good.retry_cnt(0).rnr_retry(8)),
            ("service level", good.sl(16)),
        ];
        for (what, connection) in wrong {
            let (qp, error) = init().connect(&connection).unwrap_err().into_parts();
            assert!(matches!(error, Error::Limit { .. }), "{what}: {error}");
            assert!(error.to_string().contains(what), "{what}: {error}");
            assert_eq!(qp.unwrap().query().unwrap().state(), QpState::RESET);
            parts.sweep();
        }
        let (qp, error) =
            init().connect(&good.max_rd_atomic(255).max_dest_rd_atomic(1)).unwrap_err().into_parts();
        assert_eq!(errno(&error), libc::EINVAL, "more than the device has");
        assert_eq!(qp.unwrap().query().unwrap().state(), QpState::RESET);
        init().connect(&good).unwrap();
    });
}

#[test]
fn a_port_that_is_not_there() {
    scenario(|rig| {
        let parts = rig.parts();
        for attr in [InitAttr::new(0), InitAttr::new(9)] {
            for (state, error) in [
                {
                    let refused = parts.a_builder::<Rc>().build().unwrap().init(attr).unwrap_err();
                    let (qp, error) = refused.into_parts();
                    (qp.unwrap().query().unwrap().state(), error)
                },
                {
                    let refused = parts.a_builder::<Uc>().build().unwrap().init(attr).unwrap_err();
                    let (qp, error) = refused.into_parts();
                    (qp.unwrap().query().unwrap().state(), error)
                },
            ] {
                assert_eq!(errno(&error), libc::EINVAL, "{attr:?}: {error}");
                assert_eq!(state, QpState::RESET);
            }
        }
        let mut qp = parts.a_builder::<Ud>().build().unwrap().init(UdInitAttr::new(1, 1)).unwrap();
        assert!(qp.modify_init(&UdInitModifyAttr::new().port(9)).is_err());
        qp.modify_init(&UdInitModifyAttr::new().qkey(2)).unwrap();
    });
}

#[test]
fn address_handles_that_lead_nowhere() {
    scenario(|rig| {
        let pd = rig.ctx.alloc_pd().unwrap();
        let no_grh = pd.create_ah(&AddressVector::lid(rig.local.port, 1)).unwrap_err();
        assert_eq!(errno(&no_grh), libc::EINVAL);
        assert!(no_grh.to_string().contains("RoCE needs a GRH"), "{no_grh}");
        let mut elsewhere = path(rig, rig.local.gid_index.unwrap());
        elsewhere.port = 9;
        assert_eq!(errno(&pd.create_ah(&elsewhere).unwrap_err()), libc::EINVAL);
        let empty = pd.create_ah(&path(rig, 200)).unwrap_err();
        assert!([libc::ENODATA, libc::EINVAL].contains(&errno(&empty)), "{empty}");
        // the error tells what was asked
        assert!(empty.to_string().contains("sgid_index: 200"), "{empty}");
        pd.create_ah(&path(rig, rig.local.gid_index.unwrap())).unwrap();
    });
}
