//! An expression made ready: names are columns, units fit, and it is known which rows it speaks of.

mod program;

use mitra_model::series::level;
use mitra_model::{Entity, Kind as MetricKind, column, lookup};

use crate::ast::{Expression, Function, GroupBy, Kind, LogPattern, Match, Node, Operator};
use crate::dimension::{Dimension, Measured};
use crate::error::Mistake;
use crate::logs;
use crate::suggest;

/// Metrics, selectors and functions over rows in one expression.
const USES_MAX: usize = 64;

/// Bytes that the kernel keeps of the name of a task.
const COMM_BYTES: usize = 15;

pub use program::{Aggregate, Attribute, Domain, MetricUse, Op, Program, Selector, Shown, Test};

/// Names that are kept because everybody expects them.
const ALIASES: [(&str, &str); 2] =
    [("task.cpu_system", "task.system_time"), ("task.cpu_user", "task.user_time")];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Type {
    Truth,
    Number(Measured),
}

struct Compiler {
    uses: Vec<MetricUse>,
    selectors: Vec<Selector>,
    logs: Vec<LogPattern>,
    aggregates: Vec<Aggregate>,
    shown: Vec<Shown>,
    score: Option<(Op, f64)>,
    caches: usize,
}

struct Compiled {
    op: Op,
    ty: Type,
    domain: Domain,
}

/// Compiles the condition of a rule.
pub fn condition(expression: &Expression) -> Result<Program, Mistake> {
    program(expression, true)
}

/// Compiles an expression that has a number for each task or group of tasks: who has most of it is meant.
pub fn choice(expression: &Expression) -> Result<Program, Mistake> {
    let place = expression.root.place.0.clone();
    let program = program(expression, false)?;
    match program.domain {
        Domain::Rows(Entity::Task) | Domain::Groups(GroupBy::Pid) => Ok(program),
        _ => Err(Mistake::new(place, "wanted a number of each task, or of each process: sum(…) by pid")),
    }
}

fn program(expression: &Expression, is_condition: bool) -> Result<Program, Mistake> {
    let mut compiler = Compiler {
        uses: Vec::new(),
        selectors: Vec::new(),
        logs: Vec::new(),
        aggregates: Vec::new(),
        shown: Vec::new(),
        score: None,
        caches: 0,
    };
    let root = compiler.node(&expression.root)?;
    if (root.ty == Type::Truth) != is_condition {
        let wanted = if is_condition { "a condition, such as a comparison" } else { "a number" };
        let found = if is_condition { "this is a number" } else { "this is a condition" };
        return Err(Mistake::new(expression.root.place.0.clone(), format!("{found}; wanted {wanted}")));
    }
    Ok(Program {
        leads: program::leads(&root.op, &compiler.aggregates, true),
        root: root.op,
        domain: root.domain,
        hold_s: expression.hold.map_or(0.0, |hold| hold.value()),
        uses: compiler.uses,
        selectors: compiler.selectors,
        logs: compiler.logs,
        aggregates: compiler.aggregates,
        shown: compiler.shown,
        score: compiler.score,
        caches: compiler.caches,
    })
}

impl Compiler {
    fn node(&mut self, node: &Node) -> Result<Compiled, Mistake> {
        let one = |op, measured| Compiled { op, ty: Type::Number(measured), domain: Domain::One };
        match &node.kind {
            Kind::Literal(literal) => Ok(one(Op::Constant(literal.value()), Dimension::of_literal(literal))),
            Kind::Metric { name, matches } => self.metric(node, name, matches, false),
            Kind::Log(log) => self.log(node, log),
            Kind::Negative(of) => {
                let of = self.number(of)?;
                Ok(Compiled { op: Op::Negative(Box::new(of.op)), ..of })
            }
            Kind::Not(of) => {
                let of = self.truth(of)?;
                Ok(Compiled { op: Op::Not(Box::new(of.op)), ..of })
            }
            Kind::Binary(operator, left, right) => self.binary(node, *operator, left, right),
            Kind::Call { function, argument, by } => self.call(node, *function, argument, *by),
        }
    }

    fn number(&mut self, node: &Node) -> Result<Compiled, Mistake> {
        let compiled = self.node(node)?;
        match compiled.ty {
            Type::Number(_) => Ok(compiled),
            Type::Truth => Err(at(node, "this is a condition; wanted a number")),
        }
    }

    fn truth(&mut self, node: &Node) -> Result<Compiled, Mistake> {
        let compiled = self.node(node)?;
        match compiled.ty {
            Type::Truth => Ok(compiled),
            Type::Number(_) => Err(at(node, "this is a number; compare it with something")),
        }
    }

    fn metric(
        &mut self,
        node: &Node,
        name: &str,
        matches: &[Match],
        is_slope: bool,
    ) -> Result<Compiled, Mistake> {
        let real = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        let metric_place = node.place.0.start..node.place.0.start + name.len();
        let Some((metric, column)) = lookup(real).zip(column(real)) else {
            return Err(Mistake::new(
                metric_place,
                format!("no metric is called {name}{}", suggest::metric(name)),
            ));
        };
        if metric.kind == MetricKind::Text {
            let attribute = short(metric.name);
            return Err(Mistake::new(
                metric_place,
                format!("{name} is a text; it selects rows: {{{attribute}=\"…\"}}"),
            ));
        }
        let selector = self.selector(node, metric.entity, matches)?;
        let is_one = metric.entity != Entity::Task
            && matches!(matches, [Match { attribute: None, negated: false, pattern }] if !pattern.contains(['*', '?']));
        let domain = match metric.entity {
            Entity::System => Domain::One,
            _ if is_one => Domain::One,
            entity => Domain::Rows(entity),
        };
        if self.uses.len() >= USES_MAX {
            return Err(at(node, &format!("more than {USES_MAX} metrics")));
        }
        let is_slope = is_slope && !metric.is_rate();
        self.uses.push(MetricUse { metric, column, selector, is_one, is_slope });
        let dimension = Dimension::of(metric);
        let dimension = if is_slope { dimension.per_second() } else { dimension };
        let op = Op::Metric(self.uses.len() - 1);
        Ok(Compiled { op, ty: Type::Number(Some(dimension)), domain })
    }

    /// A counter of matching lines: the one row that has the term as its name.
    fn log(&mut self, node: &Node, log: &LogPattern) -> Result<Compiled, Mistake> {
        logs::check(log).map_err(|message| at(node, &message))?;
        let Some((metric, column)) = lookup(logs::MATCHES).zip(column(logs::MATCHES)) else {
            return Err(at(node, "logs are not recorded"));
        };
        if self.uses.len() >= USES_MAX {
            return Err(at(node, &format!("more than {USES_MAX} metrics")));
        }
        let test = Test {
            of: Attribute::Name,
            negated: false,
            pattern: log.to_string(),
            is_exact: true,
            number: None,
            value: f64::NAN,
            cache: self.caches,
        };
        self.caches += 1;
        self.selectors.push(Selector { entity: Entity::Pattern, tests: vec![test] });
        let selector = Some(self.selectors.len() - 1);
        self.uses.push(MetricUse { metric, column, selector, is_one: true, is_slope: false });
        if !self.logs.contains(log) {
            self.logs.push(log.clone());
        }
        let op = Op::Metric(self.uses.len() - 1);
        Ok(Compiled { op, ty: Type::Number(Some(Dimension::of(metric))), domain: Domain::One })
    }

    fn selector(&mut self, node: &Node, entity: Entity, matches: &[Match]) -> Result<Option<usize>, Mistake> {
        if matches.is_empty() {
            return Ok(None);
        }
        if entity == Entity::System {
            return Err(at(node, "there is only one of it: nothing to select"));
        }
        let mut tests = Vec::new();
        for one in matches {
            let of = attribute(entity, one.attribute.as_deref()).map_err(|message| at(node, &message))?;
            cut_off(entity, of, &one.pattern).map_err(|message| at(node, &message))?;
            let number = one.pattern.parse().ok();
            if number.is_none() && matches!(of, Attribute::Tid | Attribute::Number(..)) {
                return Err(at(node, &format!("`{}` is no number", one.pattern)));
            }
            let value = number.map_or(f64::NAN, |n: i64| match of {
                Attribute::Number(_, name) => lookup(name).map_or(f64::NAN, |metric| level(metric, n)),
                _ => n as f64,
            });
            let cache = self.caches;
            self.caches += 1;
            let pattern = one.pattern.clone();
            let is_exact = false;
            tests.push(Test { of, negated: one.negated, pattern, is_exact, number, value, cache });
        }
        self.selectors.push(Selector { entity, tests });
        Ok(Some(self.selectors.len() - 1))
    }

    fn binary(
        &mut self,
        node: &Node,
        operator: Operator,
        left_node: &Node,
        right_node: &Node,
    ) -> Result<Compiled, Mistake> {
        let is_logic = matches!(operator, Operator::And | Operator::Or);
        let (left, right) = if is_logic {
            (self.truth(left_node)?, self.truth(right_node)?)
        } else {
            (self.number(left_node)?, self.number(right_node)?)
        };
        let domain = common(left.domain, right.domain).map_err(|message| at(node, &message))?;
        let ty = match (left.ty, right.ty) {
            (Type::Number(l), Type::Number(r)) => {
                result(operator, l, r).map_err(|message| at(node, &message))?
            }
            _ => Type::Truth,
        };
        if operator.is_comparison() {
            self.show(left_node, &left);
            self.show(right_node, &right);
            self.note_score(operator, &left, &right);
        }
        let op = Op::Binary(operator, Box::new(left.op), Box::new(right.op));
        Ok(Compiled { op, ty, domain })
    }

    /// Keeps what is compared, so that a rule that fires can say by which numbers.
    fn show(&mut self, node: &Node, of: &Compiled) {
        let is_literal = matches!(of.op, Op::Constant(_) | Op::Negative(_));
        let Type::Number(measured) = of.ty else { return };
        let text = node.to_string();
        if !is_literal && !self.shown.iter().any(|s| s.text == text) {
            let unit = measured.filter(|d| *d != Dimension::default()).map(|d| d.to_string());
            self.shown.push(Shown { text, op: of.op.clone(), unit: unit.unwrap_or_default() });
        }
    }

    fn note_score(&mut self, operator: Operator, left: &Compiled, right: &Compiled) {
        let (many, sign) = match (left.domain, right.domain) {
            (Domain::One, Domain::One) => return,
            (Domain::One, _) => (right, -1.0),
            _ => (left, 1.0),
        };
        let sign = match operator {
            Operator::Greater | Operator::GreaterOrEqual => sign,
            Operator::Less | Operator::LessOrEqual => -sign,
            _ => return,
        };
        if self.score.is_none() {
            self.score = Some((many.op.clone(), sign));
        }
    }

    fn call(
        &mut self,
        node: &Node,
        function: Function,
        argument: &Node,
        by: Option<GroupBy>,
    ) -> Result<Compiled, Mistake> {
        if function.is_over_rows() {
            return self.aggregate(node, function, argument, by);
        }
        if by.is_some() {
            return Err(at(
                node,
                &format!("{}() is of each row by itself; `by` does not fit", function.name()),
            ));
        }
        match (function, &argument.kind) {
            (Function::Rate, Kind::Metric { name, matches }) => self.metric(argument, name, matches, true),
            (Function::Rate, _) => Err(at(argument, "wanted a metric")),
            (Function::Bytes, _) => {
                let of = self.number(argument)?;
                let Type::Number(Some(dimension)) = of.ty else {
                    return Err(at(argument, "wanted a number of pages"));
                };
                let ty = Type::Number(Some(dimension.times(Dimension::PAGE_BYTES)));
                let op = Op::Binary(Operator::Multiply, Box::new(of.op), Box::new(Op::PageBytes));
                Ok(Compiled { op, ty, domain: of.domain })
            }
            _ => {
                let of = self.number(argument)?;
                Ok(Compiled { op: Op::Abs(Box::new(of.op)), ..of })
            }
        }
    }

    fn aggregate(
        &mut self,
        node: &Node,
        function: Function,
        argument: &Node,
        by: Option<GroupBy>,
    ) -> Result<Compiled, Mistake> {
        let of_truth = matches!(function, Function::Count | Function::Any | Function::All);
        // What is compared inside belongs to one row each and cannot be shown for all.
        let (shown, score) = (self.shown.len(), self.score.take());
        let of = if of_truth { self.truth(argument)? } else { self.number(argument)? };
        self.shown.truncate(shown);
        self.score = score;
        let Domain::Rows(entity) = of.domain else {
            return Err(at(argument, &format!("{}() is over rows, and this is one value", function.name())));
        };
        if by.is_some() && entity != Entity::Task {
            return Err(at(node, &format!("only tasks are put together by something, not a {entity}")));
        }
        let ty = match (function, of.ty) {
            (Function::Any | Function::All, _) => Type::Truth,
            (Function::Count, _) => Type::Number(Some(Dimension::default())),
            (_, ty) => ty,
        };
        self.aggregates.push(Aggregate { function, body: of.op, entity, by });
        let op = Op::Aggregate(self.aggregates.len() - 1);
        Ok(Compiled { op, ty, domain: by.map_or(Domain::One, Domain::Groups) })
    }
}

fn at(node: &Node, message: &str) -> Mistake {
    Mistake::new(node.place.0.clone(), message)
}

/// What both sides have values for.
fn common(left: Domain, right: Domain) -> Result<Domain, String> {
    let name = |domain: Domain| match domain {
        Domain::Rows(entity) => format!("each {entity}"),
        Domain::Groups(by) => format!("each {} of tasks", by.name()),
        Domain::One => "one".to_owned(),
    };
    match (left, right) {
        (Domain::One, other) | (other, Domain::One) => Ok(other),
        (l, r) if l == r => Ok(l),
        (l, r) => Err(format!(
            "one side has a value for {}, the other for {}; make one value of it with any(), max(), sum(), …",
            name(l),
            name(r)
        )),
    }
}

/// The type of two numbers with an operator between them.
fn result(operator: Operator, left: Measured, right: Measured) -> Result<Type, String> {
    let both = left.zip(right);
    let either = left.or(right);
    match operator {
        Operator::Multiply => Ok(Type::Number(both.map_or(either, |(l, r)| Some(l.times(r))))),
        Operator::Divide => Ok(Type::Number(match (left, right) {
            (Some(l), Some(r)) => Some(l.over(r)),
            (None, Some(r)) => Some(Dimension::default().over(r)),
            (l, None) => l,
        })),
        _ => match both {
            Some((l, r)) if l.is_pages_for_bytes(r) => {
                Err(format!("the left side is {l}, the right side {r}; bytes(…) makes bytes of pages"))
            }
            Some((l, r)) if !l.fits(r) => Err(format!("the left side is {l}, the right side {r}")),
            _ if operator.is_comparison() => Ok(Type::Truth),
            _ => Ok(Type::Number(either)),
        },
    }
}

/// A name of tasks that none can have. The kernel keeps 16 bytes of it with the zero at its end (`TASK_COMM_LEN`), and what
/// it tells of its own workers beyond that is left out of recordings.
fn cut_off(entity: Entity, of: Attribute, pattern: &str) -> Result<(), String> {
    let is_comm = match of {
        Attribute::Text(_, metric) => metric == "task.comm",
        Attribute::Name => entity == Entity::Exited,
        _ => false,
    };
    if !is_comm || pattern.len() <= COMM_BYTES || pattern.contains(['*', '?']) {
        return Ok(());
    }
    let kept = pattern.floor_char_boundary(COMM_BYTES);
    Err(format!(
        "no task is called {pattern}: the kernel keeps {COMM_BYTES} bytes of a name, which are {:?}",
        pattern.get(..kept).unwrap_or_default()
    ))
}

fn short(metric: &str) -> &str {
    metric.split_once('.').map_or(metric, |(_, rest)| rest)
}

/// What a name in a selector means for rows of an entity.
fn attribute(entity: Entity, name: Option<&str>) -> Result<Attribute, String> {
    let columns = mitra_model::columns(entity);
    let name = match (entity, name) {
        // Nobody knows a task by its row's name, `4242@81230000000`.
        (Entity::Task, None | Some("name")) => "comm",
        (Entity::Task, Some("tid")) => return Ok(Attribute::Tid),
        (Entity::Task, Some("pid")) => "tgid",
        (_, None | Some("name")) => return Ok(Attribute::Name),
        (_, Some(name)) => name,
    };
    let found = columns.iter().position(|m| short(m.name) == name || m.name == name);
    let Some(column) = found else {
        let known: Vec<&str> =
            columns.iter().filter(|m| m.kind == MetricKind::Text).map(|m| short(m.name)).collect();
        let also = if entity == Entity::Task { "pid, tid, " } else { "" };
        return Err(format!("a {entity} has no `{name}`; it has {also}name {}", known.join(" ")));
    };
    let metric = columns[column];
    match metric.kind {
        MetricKind::Text => Ok(Attribute::Text(column, metric.name)),
        MetricKind::Gauge => Ok(Attribute::Number(column, metric.name)),
        _ => Err(format!("{} moves with time; it selects no rows", metric.name)),
    }
}
