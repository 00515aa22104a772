//! The hostile corpus: what each behaviour is given, and what must come of it.
//!
//! Each behaviour is deployed as a function of its own, with limits that it meets soon. [`case`] has an arm for every
//! file of the corpus and no wildcard.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tract_onnx::pb::tensor_proto::DataType;

use crate::guests::{Behaviour, Component};
use crate::onnx::{self, Axis};
use crate::{Client, Heard};

/// What must come of a behaviour.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// A problem of this code.
    Problem(&'static str),
    /// A problem of one of these codes: which, is a matter of what comes first.
    OneOf(&'static [&'static str]),
    /// A whole answer of success with this in it: the guest was refused something, and says what it was told.
    Answer(&'static str),
    /// The same, or a closed connection: the client still sends when the answer is given, and may not see it.
    AnswerOrClosed(&'static str),
    /// An answer that visibly breaks off.
    BrokenOff,
    /// No answer that could be taken for a whole one of the guest: it breaks off, or there is a problem of status 502.
    Failed,
    /// No deploy: a problem of one of these codes.
    Refused(&'static [&'static str]),
}

/// How a behaviour is deployed and called.
pub struct Case {
    pub expect: Expect,
    pub config: Value,
    query: &'static str,
    /// The bytes of the request's body.
    body: usize,
}

impl Case {
    fn new(expect: Expect) -> Self {
        let config = json!({
            "models": ["double"],
            "env": { "OWN": "yes" },
            "egress": ["{allowed}"],
            "limits": {
                "memory": "32MiB",
                "cpu_time": "500ms",
                "response_bytes": "1MiB",
                "host_bytes": "16MiB",
                "resources": 500,
                "outbound_requests": 4,
            },
        });
        Self { expect, config, query: "", body: 0 }
    }

    fn limit(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.config["limits"][name] = value.into();
        self
    }

    fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.config[name] = value.into();
        self
    }

    /// Only the clock on the wall ends it.
    fn patient(self) -> Self {
        self.limit("cpu_time", "1m").set("request_timeout", "1s")
    }

    /// It computes long, and may.
    fn busy(self) -> Self {
        self.limit("cpu_time", "1m")
    }

    fn query(mut self, query: &'static str) -> Self {
        self.query = query;
        self
    }

    fn body(mut self, bytes: usize) -> Self {
        self.body = bytes;
        self
    }
}

/// What each file of the corpus is given, and what must come of it.
#[allow(clippy::too_many_lines)]
pub fn case(behaviour: Behaviour) -> Case {
    use Behaviour::*;
    use Expect::*;
    match behaviour {
        // Time.
        Spin | SpinInBulk | SpinOnATimer | SpinOnThePast | SpinOnTheHost | ReallocSpins => {
            Case::new(Problem("cpu_limit"))
        }
        SpinAfterAnswer | P3SpinAfterAnswer => Case::new(Answer("answered")),
        PostReturnSpins => Case::new(Answer("")),
        Sleep | WaitInSmallSteps | ComputeWithoutEnd => Case::new(Problem("request_timeout")).patient(),
        ReadSlowly => Case::new(Problem("request_timeout")).patient().body(1 << 20),
        ManySleeps => Case::new(Problem("resource_limit")),
        AliasedPollables => {
            Case::new(OneOf(&["resource_limit", "host_memory_limit"])).limit("memory", "64MiB")
        }
        P3TasksWithoutEnd => Case::new(Failed),

        // Memory, tables, stack.
        GrowMemory | GrowManyMemories => Case::new(Problem("memory_limit")),
        GrowPages => Case::new(Answer("refused at 3")),
        GrowTable | GrowManyTables => Case::new(Problem("table_limit")),
        Recurse => Case::new(Problem("function_failed")),
        DeepRecursion => Case::new(Problem("stack_limit")),
        Fill => Case::new(Answer("filled and found 8 MiB")).query("?mib=8"),
        Seek => Case::new(Answer("found 0 in")).query("?mib=16"),
        FillTable | SeekTable => Case::new(Answer("")),

        // Its own end.
        Trap | Panic | ExitWell | ExitWithACode | NeverAnswer | ReadOutOfBounds | CallNothing => {
            Case::new(Problem("function_failed"))
        }
        ForgedHandle | ConfusedHandle | DropTwice | WildString | WildResult | InvalidText => {
            Case::new(Problem("function_failed"))
        }
        Reenter | ReallocCallsTheHost | ReallocLies => Case::new(Problem("function_failed")),
        AnswerAndTrap => Case::new(Answer("answered")),
        AnswerTwice | TrapInTheMiddle | DropTheAnswer => Case::new(Failed),
        AnswerWithAnError => Case::new(Problem("function_failed")),

        // Answers.
        HoldTheAnswerOpen => Case::new(BrokenOff).patient(),
        AnswerWithoutEnd | P3AnswerWithoutEnd => Case::new(BrokenOff).busy(),
        // What was said is sent, and no more.
        LongerThanSaid => Case::new(Answer("good")),
        ShorterThanSaid => Case::new(BrokenOff),
        SaysAHugeLength | ZeroesWithoutEnd => Case::new(Failed),
        GiantHeader | HeadersWithoutEnd | ManyHeaders | GiantTrailers => Case::new(Problem("header_limit")),
        InvalidHeaders => Case::new(Answer("taken: [], as a list: false")),
        OddStatus => Case::new(Failed),

        // What the host keeps.
        LeakFields | LeakPollables | LeakGraphs | SmallTensorsWithoutEnd => {
            Case::new(Problem("resource_limit"))
        }
        LeakErrors | LeakResponses => Case::new(OneOf(&["resource_limit", "host_memory_limit"])),
        ResourcesWithoutEnd => Case::new(Problem("resource_limit")),
        TensorsWithoutEnd | AliasedLists | AliasedHeaders | LeakWrittenBodies | LeakLongAuthorities => {
            Case::new(Problem("host_memory_limit"))
        }
        LeakLongErrors => Case::new(Answer("100 errors of at most a thousand bytes: true")),
        HugeTensor => Case::new(Problem("host_memory_limit")).limit("memory", "256MiB"),
        RandomWithoutEnd => Case::new(OneOf(&["host_memory_limit", "function_failed"])),

        // Models.
        HugeShape => Case::new(Answer("InvalidArgument")),
        OverflowingShape => {
            Case::new(Answer("InvalidArgument; ErrorCode::InvalidArgument; ErrorCode::InvalidArgument"))
        }
        WrongDtype | WrongShape | WrongInputs => Case::new(Answer("InvalidArgument")),
        NamesOfOthers => Case::new(Answer("refused 14 of 14, its own: true")),
        OwnBytes => Case::new(Answer("Security")),

        // Requests.
        NeverRead => Case::new(AnswerOrClosed("unread")).body(8 << 20),
        ReadWithoutEnd => Case::new(Answer("read 8388608 bytes")).busy().body(8 << 20),
        SpliceWithoutEnd => Case::new(Answer("and its end")).busy().body(500_000),

        // What it sees, and what it says.
        Environment => {
            Case::new(Answer(r#"env: ["OWN=yes"], arguments: 0, stdin: 0 bytes, folder: "/", clock: true"#))
        }
        Files => Case::new(Answer("had []")),
        Sockets => Case::new(Answer("had []")).query("?port={forbidden}"),
        LogFlood => Case::new(Answer("flooded")).busy(),
        EmptyLines => Case::new(Answer("logged nothing")).busy(),
        EndlessLine => Case::new(Answer("sixteen MiB")).busy(),
        ForgedLog => Case::new(Answer("logged")),

        // Others.
        OutgoingToForbiddenNames => Case::new(Answer("0 went out")).limit("outbound_requests", 100),
        // Its configuration names them all, and still none may be reached.
        OutgoingToAddresses => Case::new(Answer("0 went out"))
            .query("?port={forbidden}")
            .limit("outbound_requests", 100)
            .set("egress", LOCAL.to_vec()),
        OutgoingAfterARedirect => Case::new(Answer("status 302 to http://127.0.0.1"))
            .query("?allowed={allowed}")
            .set("egress", ["{allowed}", "127.0.0.1:{forbidden}"].to_vec()),
        OutgoingWithoutEnd => Case::new(Answer("sent 4, then")).query("?allowed={allowed}"),
        OutgoingAtOnce => Case::new(Answer("4 answered")).query("?allowed={allowed}"),

        // What does not start.
        StartSpins => Case::new(OneOf(&["start_timeout", "cpu_limit"])).set("startup_timeout", "2s"),
        StartTraps | StartOutOfBounds => Case::new(Problem("start_failed")),
        StartGrowsMemory => Case::new(OneOf(&["start_failed", "memory_limit"])),
        StartRecurses => Case::new(OneOf(&["start_failed", "stack_limit"])),
        // More than the operator lets any function have.
        ManyInstances | ManyMemories => Case::new(Refused(&["instance_limit", "invalid_component"])),
        // More than the function's own configuration has.
        ManyTables => Case::new(Problem("instance_limit")),
        HugeMemory => Case::new(Refused(&["memory_limit", "instance_limit", "invalid_component"])),
        HugeTable => Case::new(Refused(&["table_limit", "instance_limit", "invalid_component"])),
        SharedMemory => Case::new(Refused(&["invalid_component"])),
    }
}

/// Where no guest may go, whatever its configuration says.
const LOCAL: [&str; 10] = [
    "127.0.0.1:{forbidden}",
    "0.0.0.0:{forbidden}",
    "10.0.0.1:{forbidden}",
    "192.168.0.1:{forbidden}",
    "169.254.169.254:{forbidden}",
    "[::1]:{forbidden}",
    "[::]:{forbidden}",
    "[fd00::1]:{forbidden}",
    "[64:ff9b::7f00:1]:{forbidden}",
    "localhost:{forbidden}",
];

/// The settings of a server that the corpus is let loose on: what is [`ALLOWED`] can be reached, though it is loopback.
/// With few sandboxes all places for them are soon in use, and memory comes to where it stays.
pub fn settings(sandboxes: u32) -> String {
    format!("[egress]\nallow = [\"127.0.0.2/32\"]\n[sandbox]\nsandboxes = {sandboxes}\n")
}

/// The metrics that are zero when a server is at rest.
pub const AT_REST: [&str; 5] =
    ["weir_sandboxes", "weir_busy_lanes", "weir_queued_jobs", "weir_host_bytes", "weir_memory_bytes"];

/// The one host that the corpus may send requests to.
const ALLOWED: &str = "127.0.0.2";

/// The corpus, deployed on a server.
pub struct Corpus {
    client: Client,
    baits: Baits,
}

impl Corpus {
    /// Deploys every behaviour that can be deployed, and the model that they have in common.
    ///
    /// # Errors
    /// What was refused, or was not.
    pub async fn deploy(client: &Client) -> Result<Self, String> {
        let model = client.put_model("double", onnx::double(DataType::Float, &[Axis::Fixed(1)])).await;
        if model.status != 201 {
            return Err(format!("the model: {}", model.text()));
        }
        let corpus = Self { client: client.clone(), baits: Baits::set().await };
        let mut wrong = vec![];
        for behaviour in Behaviour::ALL {
            let case = case(behaviour);
            if !matches!(case.expect, Expect::Refused(_)) {
                let answer = corpus.put(behaviour, &case).await;
                if answer.status != 201 {
                    wrong.push(format!("{behaviour:?} is not deployed: {}", answer.text()));
                }
            }
        }
        if wrong.is_empty() { Ok(corpus) } else { Err(wrong.join("\n")) }
    }

    async fn put(&self, behaviour: Behaviour, case: &Case) -> crate::Answer {
        let config = serde_json::from_str(&self.baits.named(&case.config.to_string())).unwrap();
        self.client.deploy(&function(behaviour), behaviour.component().bytes(), &config).await
    }

    /// Lets a behaviour do what it does, once.
    ///
    /// # Errors
    /// What came of it, if it is not what must.
    pub async fn run(&self, behaviour: Behaviour) -> Result<(), String> {
        let case = case(behaviour);
        let heard = if matches!(case.expect, Expect::Refused(_)) {
            Heard::Whole(self.put(behaviour, &case).await)
        } else {
            let query = self.baits.named(case.query);
            let path = match behaviour.component() {
                Component::File(_) => format!("/{}{query}", behaviour.name()),
                Component::Text(_) => "/".to_owned(),
            };
            self.client.hear(self.client.call(&function(behaviour), &path, vec![b'x'; case.body])).await
        };
        if fits(case.expect, &heard) {
            return Ok(());
        }
        let heard = match heard {
            Heard::Whole(answer) => format!("{}: {:.500}", answer.status, answer.text()),
            other => format!("{other:?}"),
        };
        Err(format!("{behaviour:?}: not {:?}, but {heard}", case.expect))
    }

    /// Connections that came to where no guest may go.
    pub fn touched(&self) -> usize {
        self.baits.touched.load(Ordering::Relaxed)
    }
}

/// The function that a behaviour is.
fn function(behaviour: Behaviour) -> String {
    format!("hostile-{}", behaviour.name().replace('_', "-"))
}

fn fits(expect: Expect, heard: &Heard) -> bool {
    match (expect, heard) {
        (Expect::Problem(code), Heard::Whole(answer)) => answer.code() == code,
        (Expect::OneOf(codes) | Expect::Refused(codes), Heard::Whole(answer)) => {
            codes.contains(&answer.code())
        }
        (Expect::Answer(text) | Expect::AnswerOrClosed(text), Heard::Whole(answer)) => {
            (200..300).contains(&answer.status) && answer.text().contains(text)
        }
        (Expect::Failed, Heard::Whole(answer)) => answer.status == 502 && answer.json["code"].is_string(),
        (Expect::AnswerOrClosed(_) | Expect::BrokenOff | Expect::Failed, Heard::BrokenOff { .. }) => true,
        _ => false,
    }
}

/// Two servers for guests to find: one that they may ask, which sends them to one that they may not.
struct Baits {
    allowed: SocketAddr,
    forbidden: SocketAddr,
    touched: Arc<AtomicUsize>,
}

impl Baits {
    /// A text with their places in it.
    fn named(&self, text: &str) -> String {
        let text = text.replace("{allowed}", &self.allowed.to_string());
        text.replace("{forbidden}", &self.forbidden.port().to_string())
    }

    async fn set() -> Self {
        let touched = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forbidden = listener.local_addr().unwrap();
        let mut listeners = vec![listener];
        // A machine may have no IPv6.
        listeners.extend(TcpListener::bind(("::1", forbidden.port())).await);
        for listener in listeners {
            let touched = Arc::clone(&touched);
            serve(
                listener,
                "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_owned(),
                touched,
            );
        }
        let listener = TcpListener::bind((ALLOWED, 0)).await.unwrap();
        let allowed = listener.local_addr().unwrap();
        let redirect = format!(
            "HTTP/1.1 302 Found\r\nlocation: http://{forbidden}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        serve(listener, redirect, Arc::default());
        Self { allowed, forbidden, touched }
    }
}

/// Gives everybody who comes the same answer, and counts them.
fn serve(listener: TcpListener, answer: String, came: Arc<AtomicUsize>) {
    let answer: Arc<str> = answer.into();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            came.fetch_add(1, Ordering::Relaxed);
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                // Who goes away early is of no interest here.
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(answer.as_bytes()).await;
            });
        }
    });
}
