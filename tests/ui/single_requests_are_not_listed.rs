use ibv::*;

fn twice<'a>(qp: &mut QueuePair<'a, Rc, state::Rts, Extended>, window: &mut MemoryWindow<'a>) -> Result<(), Error> {
    let list = [local_inv(window)?];
    qp.post_list(&list)?;
    Ok(qp.post_list(&list)?)
}

fn main() {}
