//! How an object holds what it needs: borrowed, or shared by [`Arc`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What an object was made from, and keeps alive for as long as it lives itself.
///
/// Every constructor takes `impl Into<Parent<'a, P>>`, so one function gives both forms:
///
/// * `&'a P` gives an object that borrows: the borrow checker keeps the order of drops.
/// * `Arc<P>` or `&Arc<P>` gives an object that shares: with `'a = 'static` it can be stored in a struct next to
///   its parents, sent to another thread and returned.
///
/// Holding costs nothing on the data path: posting and polling never look at a parent.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use ibv::{Context, Parent, ProtectionDomain};
///
/// struct Pool<'a>(Parent<'a, ProtectionDomain<'a>>);
///
/// let pd = Arc::new(ProtectionDomain::new(Arc::new(Context::open("mlx5_0")?))?);
/// let borrows = Pool((&*pd).into());
/// let shares: Pool<'static> = Pool((&pd).into());
/// # Ok::<(), ibv::Error>(())
/// ```
pub struct Parent<'a, P>(Held<'a, P>);

enum Held<'a, P> {
    Borrowed(&'a P),
    Shared(Arc<P>),
}

impl<P> Deref for Parent<'_, P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        match &self.0 {
            Held::Borrowed(parent) => parent,
            Held::Shared(parent) => parent,
        }
    }
}

impl<P> Parent<'_, P> {
    /// The `Arc` that it is held by, if it is.
    pub(crate) fn into_shared(self) -> Option<Arc<P>> {
        match self.0 {
            Held::Borrowed(_) => None,
            Held::Shared(parent) => Some(parent),
        }
    }
}

impl<'a, P> From<&'a P> for Parent<'a, P> {
    fn from(parent: &'a P) -> Self {
        Self(Held::Borrowed(parent))
    }
}

impl<P> From<Arc<P>> for Parent<'_, P> {
    fn from(parent: Arc<P>) -> Self {
        Self(Held::Shared(parent))
    }
}

impl<P> From<&Arc<P>> for Parent<'_, P> {
    fn from(parent: &Arc<P>) -> Self {
        Self(Held::Shared(Arc::clone(parent)))
    }
}

impl<P> Clone for Parent<'_, P> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Held::Borrowed(parent) => Held::Borrowed(parent),
            Held::Shared(parent) => Held::Shared(Arc::clone(parent)),
        })
    }
}

impl<P: fmt::Debug> fmt::Debug for Parent<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
