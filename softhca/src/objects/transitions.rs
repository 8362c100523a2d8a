//! Which steps of a QP's state machine are legal, with which attributes (the table of the kernel's core).

use super::qp::{QpKind, QpState};

/// The bits of `ibv_qp_attr_mask`.
pub(crate) mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(crate) const DEST_QPN: u32 = 1 << 20;
}

use mask as m;

/// Required and optional attributes of the step, or `None` if it is illegal.
pub(crate) fn step(from: QpState, to: QpState, kind: QpKind) -> Option<(u32, u32)> {
    use QpKind::{Rc, Ud, XrcIni, XrcTgt};
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let connected = kind != Ud;
    let reliable = kind.is_reliable();
    // Who sends with retries, and who answers.
    let requester = matches!(kind, Rc | XrcIni);
    let responder = matches!(kind, Rc | XrcTgt);
    let when = |yes: bool, bits: u32| if yes { bits } else { 0 };
    let rights = if connected { m::ACCESS_FLAGS } else { m::QKEY };
    let path = when(connected, m::ALT_PATH | m::ACCESS_FLAGS | m::PATH_MIG_STATE);
    let rnr_timer = when(responder, m::MIN_RNR_TIMER);
    Some(match (from, to) {
        (_, Reset) => (0, 0),
        (Reset, Init) => (m::PKEY_INDEX | m::PORT | rights, 0),
        (Init, Init) => (0, m::PKEY_INDEX | m::PORT | rights),
        (Init, Rtr) => {
            let answers = when(responder, m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER);
            if connected {
                (
                    m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN | answers,
                    m::ALT_PATH | m::ACCESS_FLAGS | m::PKEY_INDEX,
                )
            } else {
                (0, m::PKEY_INDEX | m::QKEY)
            }
        }
        (Rtr, Rts) => {
            let sends = when(requester, m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC);
            let timed = when(reliable, m::TIMEOUT);
            (m::SQ_PSN | sends | timed, m::CUR_STATE | path | rnr_timer | when(!connected, m::QKEY))
        }
        (Rts, Rts) => (0, m::CUR_STATE | path | rnr_timer | when(!connected, m::QKEY)),
        (Rts, Sqd) => (0, m::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Rts) => (0, m::CUR_STATE | path | rnr_timer | when(!connected, m::QKEY)),
        (Sqd, Sqd) => {
            let sends = when(requester, m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC);
            let answers = when(responder, m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER);
            let timed = when(reliable, m::PORT | m::TIMEOUT);
            (
                0,
                m::PKEY_INDEX
                    | when(connected, m::AV)
                    | path
                    | sends
                    | answers
                    | timed
                    | when(!connected, m::QKEY),
            )
        }
        (Sqe, Rts) => match kind {
            Ud => (0, m::CUR_STATE | m::QKEY),
            QpKind::Uc => (0, m::CUR_STATE | m::ACCESS_FLAGS),
            _ => (0, 0),
        },
        (Reset, Err) => return None,
        (_, Err) => (0, 0),
        _ => return None,
    })
}

/// Checks `attrs` for the step from `from` to `to`. XRC ends lose the attributes that aren't theirs; what stays is
/// given back.
pub(crate) fn check(from: QpState, to: QpState, kind: QpKind, attrs: u32) -> Option<u32> {
    let attrs = match kind {
        QpKind::XrcIni => attrs & !(m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER),
        QpKind::XrcTgt => attrs & !(m::MAX_QP_RD_ATOMIC | m::RETRY_CNT | m::RNR_RETRY),
        _ => attrs,
    };
    let (required, optional) = step(from, to, kind)?;
    let all = required | optional | m::STATE;
    (attrs & required == required && attrs & !all == 0).then_some(attrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [QpKind; 5] = [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::XrcIni, QpKind::XrcTgt];

    fn states() -> impl Iterator<Item = QpState> {
        (0..7).filter_map(QpState::from_wire)
    }

    #[test]
    fn twenty_two_pairs_are_legal() {
        for kind in KINDS {
            let n = states()
                .flat_map(|a| states().map(move |b| (a, b)))
                .filter(|(a, b)| step(*a, *b, kind).is_some())
                .count();
            assert_eq!(n, 22, "{kind:?}");
        }
    }

    #[test]
    fn usual_ways_up() {
        use QpState::{Init, Reset, Rtr, Rts};
        let init = m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS;
        assert!(check(Reset, Init, QpKind::Rc, init).is_some());
        assert!(check(Reset, Init, QpKind::Ud, init).is_none());
        let rtr = m::STATE | m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
        assert!(check(Init, Rtr, QpKind::Uc, rtr).is_some());
        assert!(check(Init, Rtr, QpKind::Rc, rtr).is_none());
        let answers = m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER;
        assert!(check(Init, Rtr, QpKind::Rc, rtr | answers).is_some());
        assert_eq!(check(Init, Rtr, QpKind::XrcIni, rtr | answers), Some(rtr));
        let rts = m::STATE | m::SQ_PSN;
        assert!(check(Rtr, Rts, QpKind::Ud, rts).is_some());
        assert!(check(Rtr, Rts, QpKind::Ud, rts | m::TIMEOUT).is_none());
        let sends = m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC;
        assert!(check(Rtr, Rts, QpKind::Rc, rts | sends).is_some());
        assert_eq!(check(Rtr, Rts, QpKind::XrcTgt, rts | sends), Some(rts | m::TIMEOUT));
        assert!(check(Reset, Rtr, QpKind::Rc, rtr).is_none());
        assert!(check(Reset, QpState::Err, QpKind::Rc, m::STATE).is_none());
    }
}
