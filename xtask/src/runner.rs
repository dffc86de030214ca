//! Runs suites: prints a line for each suite, the output of those that fail, and a summary.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use steadfast_test_setup::{Failure, Tool, clear_package_variables, now, seconds};

use crate::apt::Apt;
use crate::suites::{Step, Suite, words};

/// How many lines of a failed suite's output are printed. The log has the rest. CI prints all.
const TAIL_LINES: usize = 120;

#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) root: PathBuf,
    pub(crate) tools: &'static [Tool],
    /// Installs missing tools.
    pub(crate) apt: Apt,
    /// The folder for the full output of each suite.
    pub(crate) logs: PathBuf,
    /// Treat a skipped suite as failed, and print failures in full.
    pub(crate) ci: bool,
    /// The output is a terminal: print the elapsed time while a suite runs.
    pub(crate) live: bool,
}

impl Runner {
    /// Runs all of `suites`, also after a failed one. Fails if one failed.
    pub(crate) fn run(&self, suites: &[&Suite], out: &mut dyn Write) -> Result<(), Failure> {
        fs::create_dir_all(&self.logs)?;
        let width = suites.iter().map(|suite| suite.name.len()).max().unwrap_or_default();
        let mut verdicts = Vec::new();
        for (i, suite) in suites.iter().enumerate() {
            let label = format!("[{}/{}] {:width$}", i + 1, suites.len(), suite.name);
            write!(out, "{label}")?;
            out.flush()?;
            let verdict = self.run_one(suite, &label, out)?;
            verdicts.push((suite.name, verdict));
        }
        self.summarise(&verdicts, out)
    }

    fn run_one(&self, suite: &Suite, label: &str, out: &mut dyn Write) -> Result<Verdict, Failure> {
        let is_used = |tool: &&Tool| suite.needs.contains(&tool.name) || suite.wants.contains(&tool.name);
        let mut missing: Vec<&Tool> =
            self.tools.iter().filter(is_used).filter(|tool| !tool.is_usable()).collect();
        let packages: Vec<&str> = missing.iter().filter_map(|tool| tool.debian).collect();
        if !packages.is_empty() {
            self.apt.install(&packages, &self.logs.join("apt.log"), out)?;
            missing.retain(|tool| !tool.is_usable());
        }
        missing.retain(|tool| suite.needs.contains(&tool.name));
        if !missing.is_empty() {
            let reason = missing.iter().map(|tool| format!("{} is missing; get it: {}", tool.name, tool.get));
            let reason = reason.collect::<Vec<_>>().join("; ");
            writeln!(out, "  skipped  {reason}")?;
            return Ok(Verdict::Skipped { reason });
        }

        let log = self.logs.join(format!("{}.log", suite.name));
        let mut file = File::create(&log)?;
        let started = now();
        let mut tick = |out: &mut dyn Write| -> Result<(), Failure> {
            write!(out, "\r{label}  running {:>7}", seconds(started.elapsed()))?;
            Ok(out.flush()?)
        };
        let mut failed = Vec::new();
        for step in suite.steps {
            writeln!(file, "$ {}", step.title())?;
            if !self.run_step(step, &mut file, &mut tick, out)? {
                failed.push(step.title());
            }
        }
        if self.live {
            write!(out, "\r{label}")?;
        }
        let took = seconds(started.elapsed());
        if failed.is_empty() {
            writeln!(out, "  ok      {took:>7}")?;
            return Ok(Verdict::Passed);
        }
        writeln!(out, "  FAILED  {took:>7}")?;
        self.show(&log, out)?;
        Ok(Verdict::Failed { steps: failed, log })
    }

    /// Returns true if the step succeeded. Its output, or why it could not start, is in the log.
    fn run_step(
        &self,
        step: &Step,
        log: &mut File,
        tick: &mut dyn FnMut(&mut dyn Write) -> Result<(), Failure>,
        out: &mut dyn Write,
    ) -> Result<bool, Failure> {
        let (line, env) = match step {
            Step::BuiltIn { run, .. } => {
                let result = run(&self.root);
                let (Ok(text) | Err(text)) = &result;
                log.write_all(text.as_bytes())?;
                return Ok(result.is_ok());
            }
            Step::Command { line, env } => (line, env),
        };
        let [program, args @ ..] = &words(line)[..] else { return Ok(true) };
        let mut command = Command::new(program);
        clear_package_variables(&mut command);
        command.args(args).envs(env.iter().copied()).current_dir(&self.root);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        match command.spawn() {
            Ok(mut child) if self.live => Ok(wait_ticking(&mut child, || tick(out))?.success()),
            Ok(mut child) => Ok(child.wait()?.success()),
            Err(error) => {
                writeln!(log, "cannot start `{program}`: {error}")?;
                Ok(false)
            }
        }
    }

    fn show(&self, log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
        let bytes = fs::read(log)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let hidden = if self.ci { 0 } else { lines.len().saturating_sub(TAIL_LINES) };
        if hidden > 0 {
            writeln!(out, "      ({hidden} earlier lines are in the log)")?;
        }
        for line in &lines[hidden..] {
            writeln!(out, "      {line}")?;
        }
        Ok(())
    }

    /// Repeats what failed or was skipped, then prints the counts, which are always the last line.
    fn summarise(&self, verdicts: &[(&str, Verdict)], out: &mut dyn Write) -> Result<(), Failure> {
        let width = verdicts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        writeln!(out)?;
        for (name, verdict) in verdicts {
            match verdict {
                Verdict::Passed => passed += 1,
                Verdict::Failed { steps, log } => {
                    failed += 1;
                    writeln!(out, "failed   {name:width$}  again: cargo xtask test --only {name}")?;
                    for step in steps {
                        writeln!(out, "         {:width$}  step:  {step}", "")?;
                    }
                    writeln!(out, "         {:width$}  log:   {}", "", log.display())?;
                }
                Verdict::Skipped { reason } if self.ci => {
                    failed += 1;
                    writeln!(out, "failed   {name:width$}  CI refuses skips: {reason}")?;
                }
                Verdict::Skipped { reason } => {
                    skipped += 1;
                    writeln!(out, "skipped  {name:width$}  {reason}")?;
                }
            }
        }
        let skips = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        writeln!(out, "{passed} passed, {failed} failed{skips}")?;
        if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
    }
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Failed {
        /// The titles of the steps that failed.
        steps: Vec<String>,
        log: PathBuf,
    },
    Skipped {
        reason: String,
    },
}

fn wait_ticking(
    child: &mut Child,
    mut tick: impl FnMut() -> Result<(), Failure>,
) -> Result<ExitStatus, Failure> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        tick()?;
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, process};

    const GOOD: Suite =
        suite("good", &[], &[Step::BuiltIn { name: "good", run: |_| Ok("fine\n".to_owned()) }]);
    const BAD: Suite =
        suite("bad", &[], &[Step::BuiltIn { name: "bad", run: |_| Err("broken\n".to_owned()) }]);
    const ABSENT: Suite = suite("absent", &[], &[Step::Command { line: "xtask-no-such-program", env: &[] }]);
    const CARGO: Suite = suite("cargo", &[], &[Step::Command { line: "cargo --version", env: &[] }]);
    const MIXED: Suite = suite(
        "mixed",
        &[],
        &[
            Step::Command { line: "cargo xtask-no-such-command", env: &[] },
            Step::BuiltIn { name: "fine", run: |_| Ok("it ran\n".to_owned()) },
            Step::BuiltIn { name: "late", run: |_| Err("it failed too\n".to_owned()) },
        ],
    );

    const SKIPS: Suite = suite("skips", &["here", "gone"], GOOD.steps);
    const LONG: Suite = suite(
        "long",
        &[],
        &[Step::BuiltIn { name: "long", run: |_| Err((1..=200).map(|i| format!("line {i}\n")).collect()) }],
    );

    const TOOLS: &[Tool] = &[
        Tool { name: "here", probe: &["cargo", "--version"], get: "here", debian: None },
        Tool { name: "gone", probe: &["xtask-no-such-program"], get: "there", debian: Some("gone-package") },
        Tool { name: "other", probe: &["xtask-no-such-program"], get: "elsewhere", debian: None },
    ];

    const fn suite(name: &'static str, needs: &'static [&'static str], steps: &'static [Step]) -> Suite {
        Suite::new(name, "a test", steps).needs(needs)
    }

    #[test]
    fn every_suite_runs_and_the_last_line_counts() {
        check(&[&GOOD, &CARGO], Ok("2 passed, 0 failed"), &["[1/2] good   ok", "[2/2] cargo  ok"]);
        check(&[&BAD, &GOOD], Err("1 passed, 1 failed"), &["broken", "--only bad", "[2/2] good  ok"]);
        check(&[&ABSENT], Err("0 passed, 1 failed"), &["cannot start `xtask-no-such-program`"]);
        check(&[], Ok("0 passed, 0 failed"), &[]);
    }

    #[test]
    fn a_step_that_fails_does_not_hide_the_steps_after_it() {
        let output = ["$ cargo xtask-no-such-command", "it ran\n", "it failed too\n"];
        check(&[&MIXED], Err("0 passed, 1 failed"), &output);
        let summary = "\
failed   mixed  again: cargo xtask test --only mixed
                step:  cargo xtask-no-such-command
                step:  cargo late
                log:   ";
        check(&[&MIXED], Err("0 passed, 1 failed"), &[summary]);
    }

    #[test]
    fn a_skip_is_named_and_ci_refuses_it() {
        let reason = "gone is missing; get it: there";
        let (ok, text) = run(&[&SKIPS, &GOOD], &runner());
        assert!(ok && text.starts_with(&format!("[1/2] skips  skipped  {reason}\n")), "{text}");
        assert!(
            text.ends_with(&format!("\nskipped  skips  {reason}\n1 passed, 0 failed, 1 skipped\n")),
            "{text}"
        );
        let (ok, text) = run(&[&SKIPS, &GOOD], &Runner { ci: true, ..runner() });
        let expect = format!("\nfailed   skips  CI refuses skips: {reason}\n1 passed, 1 failed\n");
        assert!(!ok && text.ends_with(&expect), "{text}");
    }

    #[test]
    fn only_ci_shows_all_of_a_long_output() {
        let (_, text) = run(&[&LONG], &runner());
        assert!(text.contains("(81 earlier lines are in the log)") && !text.contains("line 80\n"), "{text}");
        let (_, text) = run(&[&LONG], &Runner { ci: true, ..runner() });
        assert!(!text.contains("earlier lines") && text.contains("line 80\n"), "{text}");
    }

    /// Runs `suites` and expects this last line, as `Err` if the run fails, and each of `parts`.
    fn check(suites: &[&Suite], expect: Result<&str, &str>, parts: &[&str]) {
        for live in [false, true] {
            let (ok, text) = run(suites, &Runner { live, ..runner() });
            let last = text.lines().last().unwrap_or_default();
            assert_eq!(if ok { Ok(last) } else { Err(last) }, expect, "{text}");
            for part in parts {
                assert!(text.contains(part), "`{part}` is not in:\n{text}");
            }
        }
    }

    fn run(suites: &[&Suite], runner: &Runner) -> (bool, String) {
        let mut out = Vec::new();
        let result = runner.run(suites, &mut out);
        fs::remove_dir_all(&runner.logs).unwrap();
        (result.is_ok(), String::from_utf8(out).unwrap())
    }

    /// Each thread has its own log folder, because tests run in parallel.
    fn runner() -> Runner {
        let unique = format!("xtask-runner-{}-{:?}", process::id(), thread::current().id());
        let logs = env::temp_dir().join(unique);
        Runner { root: env::temp_dir(), tools: TOOLS, apt: Apt::by(None), logs, ci: false, live: false }
    }
}
