//! What calls have used after their records, and calls that were refused before they began: by revision, until the next flush
//! makes records of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bill::Amounts;
use super::record::{Kind, Outcome, Record};

/// What one revision's calls have left; or a function's, with revision 0, of calls that went to none.
#[derive(Debug)]
pub struct Rest {
    tenant: Arc<str>,
    function: Arc<str>,
    revision: u64,
    class: Option<Arc<str>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    amounts: Amounts,
    /// How many calls were refused, by the problem's code.
    refused: BTreeMap<&'static str, u64>,
}

/// The rests of all revisions.
#[derive(Default)]
pub struct Rests(Mutex<Vec<Arc<Rest>>>);

impl Rest {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says in a record whose it is.
    pub fn sign(&self, record: &mut Record) {
        record.tenant = Arc::clone(&self.tenant);
        record.function = Some(Arc::clone(&self.function));
        record.revision = self.revision;
        record.class = self.class.clone();
    }

    /// A call has left this.
    pub fn add(&self, amounts: Amounts) {
        self.state().amounts.add(amounts);
    }

    /// A call was refused before it began. So many of them may come that they have one record together.
    pub fn refused(&self, code: &'static str) {
        *self.state().refused.entry(code).or_default() += 1;
    }

    /// What has come since this was last asked, as records.
    fn take(&self) -> Vec<Record> {
        let mut state = self.state();
        let empty = |outcome| {
            let mut record = Record { kind: Kind::Rest, outcome, ..Record::default() };
            self.sign(&mut record);
            record
        };
        let mut left = empty(Outcome::Answered);
        let nothing = left.clone();
        state.amounts.take(&mut left);
        let left = (left != nothing).then_some(left);
        let refused = std::mem::take(&mut state.refused).into_iter();
        let refused =
            refused.map(|(code, calls)| Record { code: Some(code.into()), calls, ..empty(Outcome::Refused) });
        left.into_iter().chain(refused).collect()
    }
}

impl Rests {
    /// What calls of this revision leave goes here.
    pub fn open(
        &self,
        tenant: &Arc<str>,
        function: &Arc<str>,
        revision: u64,
        class: Option<Arc<str>>,
    ) -> Arc<Rest> {
        let (tenant, function, state) = (Arc::clone(tenant), Arc::clone(function), Mutex::default());
        let rest = Arc::new(Rest { tenant, function, revision, class, state });
        self.lock().push(Arc::clone(&rest));
        rest
    }

    /// What has come since this was last asked, as records. Those of revisions that are no more are told for the last time.
    pub fn take(&self) -> Vec<Record> {
        let mut rests = self.lock();
        let all = rests.clone();
        // The list and its copy know of each.
        rests.retain(|rest| Arc::strong_count(rest) > 2);
        drop(rests);
        all.iter().flat_map(|rest| rest.take()).collect()
    }

    /// Whether nothing can come any more, as all functions are gone and their calls have ended.
    pub fn is_idle(&self) -> bool {
        self.lock().iter().all(|rest| Arc::strong_count(rest) == 1)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Rest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
