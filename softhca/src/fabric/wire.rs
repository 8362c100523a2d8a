//! Messages between processes: requests and answers as bytes.

use crate::bits::Syndrome;
use crate::engine::request::{Answer, Data, Grh, Payload, Request};
use crate::mem::{Space, Span};
use crate::objects::QpKind;

/// A message between processes.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request to device `dev`; answered if `transmission` is not 0.
    Request { generation: u64, dev: u16, transmission: u32, request: Request },
    /// The answer to transmission `transmission` of QP `qpn`.
    Answer { generation: u64, qpn: u32, transmission: u32, answer: Answer },
    /// A datagram to a multicast group.
    Group { generation: u64, gid: [u8; 16], request: Request },
}

#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.0.extend(v.to_le_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.0.extend(v.to_le_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.0.extend(v.to_le_bytes());
    }
    fn bytes(&mut self, b: &[u8]) {
        self.u32(u32::try_from(b.len()).unwrap_or(0));
        self.0.extend(b);
    }
}

#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (a, b) = self.0.split_at_checked(n)?;
        self.0 = b;
        Some(a)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.u32()?).ok()?;
        self.take(n)
    }
}

fn kind_code(k: QpKind) -> u8 {
    match k {
        QpKind::Rc => 2,
        QpKind::Uc => 3,
        QpKind::Ud => 4,
        QpKind::XrcIni => 9,
        QpKind::XrcTgt => 10,
    }
}

fn put_request(w: &mut Writer, r: &Request) {
    w.u8(r.op);
    w.u8(kind_code(r.kind));
    w.u8(u8::from(r.solicited));
    w.u8(r.sl);
    for v in [r.imm, r.src_qpn, r.dst_qpn, r.psn, r.packets, r.rkey, r.qkey, r.srqn] {
        w.u32(v);
    }
    for v in [r.raddr, r.swap_add, r.compare, r.len] {
        w.u64(v);
    }
    w.u16(r.pkey);
    w.u16(r.slid);
    match &r.grh {
        None => w.u8(0),
        Some(g) => {
            w.u8(1);
            w.0.extend(g.sgid);
            w.0.extend(g.dgid);
            w.u32(g.flow_label);
            w.u8(g.traffic_class);
            w.u8(g.hop_limit);
        }
    }
    match &r.payload {
        Payload::Bytes(b) => {
            w.u8(0);
            w.bytes(b);
        }
        Payload::Spans(_, spans) => {
            w.u8(1);
            w.u32(u32::try_from(spans.len()).unwrap_or(0));
            for s in spans {
                w.u64(s.addr);
                w.u64(s.len);
            }
        }
    }
}

/// Reads a request. If its message is long, its spans are memory of `process`.
fn get_request(r: &mut Reader<'_>, process: impl Fn() -> i32) -> Option<Request> {
    let op = r.u8()?;
    let kind = QpKind::from_wire(u32::from(r.u8()?))?;
    let solicited = r.u8()? != 0;
    let sl = r.u8()?;
    let mut w = [0u32; 8];
    for v in &mut w {
        *v = r.u32()?;
    }
    let [imm, src_qpn, dst_qpn, psn, packets, rkey, qkey, srqn] = w;
    let (raddr, swap_add, compare, len) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let (pkey, slid) = (r.u16()?, r.u16()?);
    let grh = match r.u8()? {
        0 => None,
        _ => Some(Grh {
            sgid: r.array()?,
            dgid: r.array()?,
            flow_label: r.u32()?,
            traffic_class: r.u8()?,
            hop_limit: r.u8()?,
        }),
    };
    let payload = match r.u8()? {
        0 => Payload::Bytes(r.bytes()?.to_vec()),
        _ => {
            let n = r.u32()?;
            let spans =
                (0..n).map(|_| Some(Span { addr: r.u64()?, len: r.u64()? })).collect::<Option<Vec<_>>>()?;
            // What is short travels with the message, either way.
            let pid = if len > super::INLINE { process() } else { 0 };
            Payload::Spans(Space::Process(pid), spans)
        }
    };
    // No message is longer than a byte count says, nor says that it is longer, or shorter, than what it carries.
    let carried = match &payload {
        Payload::Bytes(b) => b.len() as u64,
        Payload::Spans(_, spans) => spans.iter().try_fold(0u64, |n, s| n.checked_add(s.len))?,
    };
    if carried != len || u32::try_from(len).is_err() {
        return None;
    }
    Some(Request {
        op,
        kind,
        solicited,
        imm,
        src_qpn,
        dst_qpn,
        psn,
        packets,
        rkey,
        raddr,
        swap_add,
        compare,
        len,
        qkey,
        pkey,
        srqn,
        slid,
        sl,
        grh,
        payload,
    })
}

const SYNDROMES: [Syndrome; 4] = [
    Syndrome::RemoteInvalidRequest,
    Syndrome::RemoteAccess,
    Syndrome::RemoteOperation,
    Syndrome::RemoteAborted,
];

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(256));
        match self {
            Self::Request { generation, dev, transmission, request } => {
                w.u8(1);
                w.u64(*generation);
                w.u16(*dev);
                w.u32(*transmission);
                put_request(&mut w, request);
            }
            Self::Answer { generation, qpn, transmission, answer } => {
                w.u8(2);
                w.u64(*generation);
                w.u32(*qpn);
                w.u32(*transmission);
                match answer {
                    Answer::Ack(Data::Bytes(b)) => {
                        w.u8(1);
                        w.bytes(b);
                    }
                    Answer::Ack(_) => w.u8(0),
                    Answer::Nak(s) => {
                        w.u8(2);
                        w.u8(*s as u8);
                    }
                    Answer::Rnr(code) => {
                        w.u8(3);
                        w.u8(*code);
                    }
                    Answer::Silent => w.u8(4),
                }
            }
            Self::Group { generation, gid, request } => {
                w.u8(3);
                w.u64(*generation);
                w.0.extend(gid);
                put_request(&mut w, request);
            }
        }
        w.0
    }

    /// Reads a message of `process`. `None` if it makes no sense.
    pub(crate) fn decode(b: &[u8], process: impl Fn() -> i32) -> Option<Self> {
        let mut r = Reader(b);
        let what = r.u8()?;
        let generation = r.u64()?;
        Some(match what {
            1 => Self::Request {
                generation,
                dev: r.u16()?,
                transmission: r.u32()?,
                request: get_request(&mut r, process)?,
            },
            2 => Self::Answer {
                generation,
                qpn: r.u32()?,
                transmission: r.u32()?,
                answer: match r.u8()? {
                    0 => Answer::Ack(Data::Placed),
                    1 => Answer::Ack(Data::Bytes(r.bytes()?.to_vec())),
                    2 => {
                        let code = r.u8()?;
                        Answer::Nak(SYNDROMES.into_iter().find(|s| *s as u8 == code)?)
                    }
                    3 => Answer::Rnr(r.u8()?),
                    _ => Answer::Silent,
                },
            },
            3 => Self::Group { generation, gid: r.array()?, request: get_request(&mut r, process)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u64, payload: Payload) -> Request {
        Request {
            op: 9,
            kind: QpKind::XrcIni,
            solicited: true,
            imm: 1,
            src_qpn: 2,
            dst_qpn: 3,
            psn: 4,
            packets: 5,
            rkey: 6,
            raddr: 7,
            swap_add: 8,
            compare: 9,
            len,
            qkey: 11,
            pkey: 12,
            srqn: 13,
            slid: 14,
            sl: 3,
            grh: Some(Grh { sgid: [1; 16], dgid: [2; 16], flow_label: 3, traffic_class: 4, hop_limit: 5 }),
            payload,
        }
    }

    #[test]
    fn round_trip() {
        let long = super::super::INLINE + 1;
        for (len, p) in [(5, Payload::Bytes(b"hello".to_vec())), (long, spans(&[2, long - 2]))] {
            let m = Message::Request { generation: 4, dev: 1, transmission: 7, request: request(len, p) };
            let back = Message::decode(&m.encode(), || 5).unwrap();
            assert_eq!(format!("{m:?}"), format!("{back:?}"));
        }
        for answer in
            [Answer::Rnr(12), Answer::Nak(Syndrome::RemoteAccess), Answer::Ack(Data::Bytes(vec![1, 2]))]
        {
            let m = Message::Answer { generation: 4, qpn: 1, transmission: 2, answer };
            assert_eq!(format!("{m:?}"), format!("{:?}", Message::decode(&m.encode(), || 1).unwrap()));
        }
    }

    fn spans(lengths: &[u64]) -> Payload {
        Payload::Spans(Space::Process(5), lengths.iter().map(|len| Span { addr: 1, len: *len }).collect())
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        let bytes = |n| Payload::Bytes(vec![1; n]);
        for (len, payload) in [
            (u64::MAX, bytes(9)),
            (8, bytes(9)),
            (10, bytes(9)),
            (0, spans(&[1])),
            (1 << 20, spans(&[1 << 19, 1 << 18])),
            (1, spans(&[u64::MAX, 2])),
            (u64::MAX, spans(&[u64::MAX])),
            (1 << 32, spans(&[1 << 32])),
        ] {
            let m = Message::Group { generation: 4, gid: [1; 16], request: request(len, payload) };
            assert!(Message::decode(&m.encode(), || 5).is_none(), "{m:?}");
        }
    }

    #[test]
    fn cut_messages_are_refused() {
        let m = Message::Request {
            generation: 4,
            dev: 1,
            transmission: 7,
            request: request(9, Payload::Bytes(vec![1; 9])),
        };
        let b = m.encode();
        for n in 0..b.len() {
            assert!(Message::decode(&b[..n], || 1).is_none(), "{n}");
        }
    }
}
