//! Changes of who serves a function's calls. A revision that cannot start never takes them from one that can: it is
//! started before they move.

use std::sync::Arc;

use super::{Deploy, Deployed, Node};
use crate::audit::Actor;
use crate::function::{Function, FunctionRecord, Revision, RevisionRecord, Weight};
use crate::http::precondition::{Precondition, Tag};
use crate::http::problem::{Code, Problem};
use crate::name::Name;
use crate::store::Kept;

/// What is asked of a function's traffic.
pub enum Traffic {
    Split {
        weights: Vec<Weight>,
        sticky_header: Option<String>,
    },
    /// So many percent of it to the newest revision.
    Canary(u8),
    /// All of it to one revision: this, or the one that had all of it before.
    Rollback(Option<u64>),
}

impl Traffic {
    /// The record as it is to be.
    fn on(&self, mut record: FunctionRecord) -> Result<FunctionRecord, Problem> {
        let invalid = |reason| Problem::new(Code::InvalidConfig, reason);
        match self {
            Self::Split { weights, sticky_header } => {
                record.check_traffic(weights, sticky_header.as_deref()).map_err(invalid)?;
                record.set_traffic(weights.clone());
                record.sticky_header = sticky_header.as_ref().map(|name| name.to_ascii_lowercase());
            }
            Self::Canary(percent) => {
                if let Some(newest) = record.revisions.last().map(|newest| newest.revision) {
                    record.canary(newest, *percent);
                }
            }
            Self::Rollback(wanted) => {
                let target = wanted.or_else(|| record.rollback_target());
                let revision = target.ok_or_else(|| {
                    Problem::new(Code::Conflict, "there is no revision to go back to: there is one alone")
                })?;
                let traffic = vec![Weight { revision, weight: 100 }];
                record.check_traffic(&traffic, None).map_err(invalid)?;
                record.set_traffic(traffic);
            }
        }
        Ok(record)
    }
}

impl Node {
    /// Shares a function's traffic out, or rolls it back.
    ///
    /// # Errors
    /// For weights that cannot be, a condition that does not hold, nothing to go back to, or a revision that would get calls
    /// and cannot start; nothing has changed then.
    pub async fn set_traffic(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        traffic: Traffic,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(FunctionRecord, Tag), Problem> {
        let mut tried: Vec<u64> = Vec::new();
        loop {
            let wanted = {
                let _change = self.change_by(by).await?;
                let function = self.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))?;
                let kept = self.record(&function).await?;
                condition.check(Some(&kept))?;
                let before = kept.record.clone();
                let record = traffic.on(kept.record)?;
                self.hosts.check(&record, &self.settings().http)?;
                let untried = function.revisions().into_iter().find(|revision| {
                    let number = revision.number;
                    record.serves(number) && !before.serves(number) && !tried.contains(&number)
                });
                match untried {
                    Some(revision) => revision,
                    None => return self.put_traffic(&function, record, by).await,
                }
            };
            // It may take a while, and others' changes do not wait for it.
            wanted.try_start().await.map_err(|problem| refused(&problem, wanted.number))?;
            tried.push(wanted.number);
        }
    }

    /// A deploy of what is a function's newest revision already: that gets the share of the traffic that the deploy says.
    pub(super) async fn deploy_again(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        same: Deployed,
        deploy: &Deploy,
    ) -> Result<Deployed, Problem> {
        let traffic = Traffic::Canary(deploy.traffic);
        if traffic.on(same.record.clone())?.traffic == same.record.traffic {
            return Ok(same);
        }
        let (record, tag) = self.set_traffic(tenant, name, traffic, &deploy.by, &deploy.condition).await?;
        Ok(Deployed { record, tag, ..same })
    }

    async fn put_traffic(
        self: &Arc<Self>,
        function: &Function,
        record: FunctionRecord,
        by: &Actor,
    ) -> Result<(FunctionRecord, Tag), Problem> {
        let version = self.write(&record, by).await?;
        function.update(&record, self, None);
        self.hosts.settle(&record);
        let kept = Kept { record, version };
        let tag = Tag::from(&kept);
        Ok((kept.record, tag))
    }

    /// A new revision of a function that has others, started: `record` is what it would be.
    ///
    /// # Errors
    /// Why it does not start.
    pub(super) async fn try_revision(
        self: &Arc<Self>,
        function: &Function,
        record: &RevisionRecord,
    ) -> Result<Started, Problem> {
        let started = Started(Some(function.revision(record, self)));
        if let Started(Some(revision)) = &started {
            revision.try_start().await.map_err(|problem| refused(&problem, revision.number))?;
        }
        Ok(started)
    }

    /// Forgets the components of revisions that are removed, when their calls need them no more.
    pub(super) fn forget_revisions(self: &Arc<Self>, removed: Vec<Arc<Revision>>) {
        let node = Arc::clone(self);
        tokio::spawn(async move {
            for revision in removed {
                revision.drained().await;
                let _change = node.changes.lock().await;
                // A server that has stopped holds its folder no more; the next one's start sweeps it.
                if node.stop.ended.is_cancelled() {
                    return;
                }
                node.forget(&revision.digest);
            }
        });
    }
}

fn refused(problem: &Problem, revision: u64) -> Problem {
    let detail = format!("revision {revision} does not start, so nothing has changed: {}", problem.detail);
    Problem::new(problem.code, detail)
}

/// A revision that has been started and is not its function's yet. It leaves memory if it never becomes so.
pub(super) struct Started(Option<Arc<Revision>>);

impl Started {
    /// It becomes its function's, under this number or not at all.
    pub(super) fn take(mut self, number: u64) -> Option<Arc<Revision>> {
        match self.0.take() {
            Some(revision) if revision.number == number => Some(revision),
            other => {
                self.0 = other;
                None
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(revision) = &self.0 {
            revision.retire();
        }
    }
}
