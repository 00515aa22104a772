//! Components that are on their way to a revision: nothing refers to their bytes and artifacts yet, and yet they must stay.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many deploys there are of each digest.
#[derive(Debug, Default)]
pub struct Deploying(Mutex<HashMap<String, usize>>);

/// What is on its way while this lives.
#[derive(Debug)]
pub struct Held<'a> {
    deploying: &'a Deploying,
    digest: String,
}

impl Deploying {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a component's bytes and artifact while the answer lives.
    pub fn hold(&self, digest: &str) -> Held<'_> {
        *self.lock().entry(digest.to_owned()).or_default() += 1;
        Held { deploying: self, digest: digest.to_owned() }
    }

    /// Whether some deploy has it.
    pub fn has(&self, digest: &str) -> bool {
        self.lock().contains_key(digest)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut all = self.deploying.lock();
        if let Some(deploys) = all.get_mut(&self.digest) {
            *deploys -= 1;
            if *deploys == 0 {
                all.remove(&self.digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_deploy_is_held_until_the_last_is_done() {
        let deploying = Deploying::default();
        let (one, other) = (deploying.hold("a"), deploying.hold("a"));
        assert!(deploying.has("a") && !deploying.has("b"));
        drop(one);
        assert!(deploying.has("a"));
        drop(other);
        assert!(!deploying.has("a") && deploying.lock().is_empty());
    }
}
