use ibv::fields::{ByteLen, QpNum, Timestamp};
use ibv::{ExtendedCompletion, Poller, WcError};

fn poll(poller: &mut Poller<'_, (ByteLen, QpNum)>) -> Result<(), WcError> {
    if let Ok(Some(wc)) = poller.poll_one() {
        let (ByteLen(_), Timestamp(_)) = wc.result()?;
    }
    let _ = poller.poll(&mut [ExtendedCompletion::<Timestamp>::default(); 4]);
    Ok(())
}

fn main() {}
