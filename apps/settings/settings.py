"""Overrides: checked, stored, then applied, one change at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from apps.settings.changed_items import changed_items, digest_of
from apps.settings.errors import StoreError
from apps.settings.file_plan import FilePlan
from apps.settings.store import SettingsStore, StoredChange
from apps.settings.undo import undo_key, undoing_overrides
from controller.batches import batches
from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.config_model import Config
from controller.limits.admission import AdmittedLimits
from controller.limits.change_validation import check_sharding
from controller.limits.effective_settings import EffectiveSettings, UnfitError, resolve, resolve_change
from controller.limits.overrides import (
    VLAN_LIMITS,
    FileValues,
    Override,
    Overrides,
    VnName,
)

Run = Callable[..., Any]
_FILE, _FILE_REVISION = "file", "file_revision"
_PORT = "port"  # followed by switch and number of an edge port: the port's first name
# VNs of one change that are handled before other greenlets run.
_BATCH_SIZE = 500
CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a change, and the address."""

    who: str
    address: str


SYSTEM = Caller("controller", "")


@dataclass(frozen=True)
class ChangeOutcome:
    """The result of a change or a dry run: its revision, the effective values, and the number of changed values."""

    revision: int
    values: EffectiveSettings
    overrides: Overrides
    changed: int


@dataclass(frozen=True)
class _Proposal:
    """A change before it is checked: new overrides, which replace those of the same VLANs and VNs."""

    action: str
    vlans: Mapping[int, Override]
    vns: Mapping[VnName, Override]


class Settings:
    """The overrides of one controller, and the effective values that result from them.

    When the constructor returns, the stored overrides are effective. ``run`` calls a blocking function with arguments
    and returns its result, ``compute`` does the same for long computations. ``yield_control`` lets other greenlets run.
    Methods raise StoreError if the store cannot be read or written.
    """

    def __init__(
        self,
        central: CentralController,
        store: SettingsStore,
        clock: Callable[[], float],
        run: Run = lambda function, *arguments: function(*arguments),
        yield_control: Callable[[], None] = lambda: None,
        compute: Run = lambda function, *arguments: function(*arguments),
    ) -> None:
        self.central, self.store = central, store
        self._clock, self._run, self._yield_control, self._compute = clock, run, yield_control, compute
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._last_store_error = ""
        self.file = FileValues(central.config)
        self.values = EffectiveSettings(self.file.vns, {}, {}, {}, {}, {})
        self._apply_stored()

    def sync_from_store(self) -> bool:
        """Apply the present contents of a store that other nodes change too; return whether that was done.

        While a change is being made, nothing is done. Raises StoreError.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._apply_stored()
        finally:
            self._lock.release()
        return True

    def _apply_stored(self) -> None:
        """Make the stored overrides effective."""
        stored = self.store.load()
        self.revision = stored.revision
        self._facts: Mapping[str, str] = stored.metadata
        self.overrides = Overrides.build(self.file, stored.vlans, stored.vns)
        values = resolve(self.overrides, self.central.fabric.admitted.core_overload)
        plan = self._plan(self.overrides, values, digest_of(self.file))
        self.central.put_in_force(plan.values, self._clock())
        plan.commit()

    def close(self) -> None:
        """Close the store after the present change and the present read of the history; reject later ones.

        If they take longer than CLOSE_TIMEOUT_S, the store stays open. Call it before the callers' greenlets end: one
        that ends while its thread uses the store releases the lock too early.
        """
        with contextlib.ExitStack() as held:
            for lock in (self._lock, self._reading):
                if not lock.acquire(timeout=CLOSE_TIMEOUT_S):
                    return
                held.callback(lock.release)
            self.store.close()

    # -- reading

    def vn_revision(self, row: int) -> int:
        """Return the revision of the last change to a VN's values, including its VLAN's limits and weight.

        ``row`` is the VN's row in the table of VNs.
        """
        vlan_override = self.overrides.vlans.get(int(self.file.vns.vlan_vid[row]), Override({}, 0))
        # The weight of a VLAN has no revision of its own: if it was set, each change of the VLAN counts.
        has_weight = "weight" in vlan_override.values
        inherited = vlan_override.revision if has_weight else vlan_override.limits_revision
        return max(int(self.overrides.revision[row]), inherited, self._file_revision)

    def revision_of(self, name: VnName) -> int:
        """Return the revision of the last change to a VN's values; of the last change if the file has no such VN."""
        row = self.file.row_of.get(name)
        return self.revision if row is None else self.vn_revision(row)

    def vlan_revision(self, vlan_vid: int) -> int:
        """Return the revision of the last change to a VLAN."""
        override = self.overrides.vlans.get(vlan_vid)
        return max(override.revision if override is not None else 0, self._file_revision)

    def history(self, before: int, limit: int) -> list[StoredChange]:
        """Return changes without their items, newest first, below revision ``before``."""
        return list(self._read(self.store.history, before, limit))

    def change_of(self, revision: int) -> StoredChange | None:
        """Return a change with its items, None if it is not stored."""
        found: StoredChange | None = self._read(self.store.change, revision)
        return found

    def change_concerns(self, revision: int, scope: tuple[int | None, str | None, int | None]) -> bool:
        """Return whether a change concerns a scope (VLAN id, switch name, port number; None for any)."""

        def concerns() -> bool:
            change = self.store.change(revision)
            return change is not None and change.concerns(scope)

        return bool(self._read(concerns))

    def _read(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function that reads the history; ``close`` waits for its end."""
        with self._reading:
            return self._run(function, *arguments)

    # -- names of ports, which no operator sets

    def port_names(self) -> dict[tuple[str, int], str]:
        """Return the stored first names of edge ports, by switch name and port number."""
        port_facts = ([*key.split(" "), name] for key, name in self._facts.items() if key.startswith(f"{_PORT} "))
        return {(switch, int(port_no)): name for _, switch, port_no, name in port_facts}

    def keep_port_names(self, names: Mapping[tuple[str, int], str]) -> None:
        """Store names of edge ports. Raises StoreError."""
        facts = {f"{_PORT} {switch} {port_no}": name for (switch, port_no), name in names.items()}
        with self._lock:
            self._write(self.store.keep_facts, facts)
            self._facts = {**self._facts, **facts}

    # -- changing; ``expect`` is called first, under the lock. It raises an error if the caller saw another revision.

    def change_vns(
        self,
        changes: Mapping[VnName, Mapping[str, float | None]],
        caller: Caller,
        action: str = "vn",
        *,
        expect: Callable[[], None],
        dry_run: bool,
    ) -> ChangeOutcome:
        """Set limits, ceilings and weights of VNs of the configuration: all, or none.

        Raises UnfitError if ports or links cannot carry them, StoreError if they cannot be stored.
        """

        def propose(revision: int) -> _Proposal:
            new_overrides = {}
            for name in changes.keys() - self.file.row_of.keys():
                raise InvalidValueError("vn", str(name), "is not a VN of the configuration any more")
            rows = np.array([self.file.row_of[name] for name in changes], dtype=np.int64)
            old_overrides = self.overrides.vn_overrides_of(rows)
            for count, (name, before) in enumerate(zip(changes, old_overrides, strict=True), 1):
                new_overrides[name] = Override({**before.values, **changes[name]}, revision)
                self._yield_after(count)
            return _Proposal(action, {}, new_overrides)

        return self._change(propose, caller, expect, dry_run)

    def change_vlan(
        self, vlan_vid: int, values: Mapping[str, Any], caller: Caller, *, expect: Callable[[], None], dry_run: bool
    ) -> ChangeOutcome:
        """Set values of a VLAN of the configuration, which must be valid. Raises as ``change_vns`` does."""

        def propose(revision: int) -> _Proposal:
            if vlan_vid not in self.file.config.vlans:
                raise InvalidValueError("vlan_vid", vlan_vid, "is not a VLAN of the configuration any more")
            before = self.overrides.vlans.get(vlan_vid, Override({}, 0))
            limits_revision = revision if any(name in values for name in VLAN_LIMITS) else before.limits_revision
            override = Override({**before.values, **values}, revision, limits_revision)
            return _Proposal("vlan", {vlan_vid: override}, {})

        return self._change(propose, caller, expect, dry_run)

    def reset(
        self,
        vlan_vids: Iterable[int],
        names: Iterable[VnName],
        caller: Caller,
        *,
        expect: Callable[[], None],
        dry_run: bool,
    ) -> ChangeOutcome:
        """Remove the overrides of these VLANs and VNs. Raises as ``change_vns`` does."""

        def propose(revision: int) -> _Proposal:
            # A removed override is stored without values, so that its revision remains.
            empty_vlans = {vid: Override({}, revision, revision) for vid in vlan_vids}
            return _Proposal("reset", empty_vlans, dict.fromkeys(names, Override({}, revision)))

        return self._change(propose, caller, expect, dry_run)

    def replace_all(
        self,
        action: str,
        vlans: Mapping[int, Mapping[str, Any]],
        vns: Mapping[VnName, Mapping[str, float | None]],
        caller: Caller,
        *,
        expect: Callable[[], None],
        dry_run: bool,
    ) -> ChangeOutcome:
        """Replace all overrides by those of ``vlans`` (by id) and ``vns``; those that do not fit are inactive.

        ``action`` names the change in the history. Raises StoreError.
        """

        def propose(revision: int) -> _Proposal:  # present overrides that are not replaced become empty
            new_vlans = {vid: Override({}, revision, revision) for vid, _ in self.overrides.vlan_overrides()}
            new_vns = {name: Override({}, revision) for name, _ in self.overrides.vn_overrides()}
            new_vlans |= {vid: Override(values, revision, revision) for vid, values in vlans.items()}
            new_vns |= {name: Override(values, revision) for name, values in vns.items()}
            return _Proposal(action, new_vlans, new_vns)

        return self._change(propose, caller, expect, dry_run, may_be_inactive=True)

    def undo(self, change: StoredChange, caller: Caller, *, expect: Callable[[], None], dry_run: bool) -> ChangeOutcome:
        """Undo a change by a new change. If one of its values was changed again since, nothing is undone.

        Raises StoreError, and InvalidValueError that names the value which cannot be restored.
        """

        def propose(revision: int) -> _Proposal:
            return _Proposal("undo", *undoing_overrides(change, self.overrides, self.values, revision))

        try:
            return self._change(propose, caller, expect, dry_run)
        except UnfitError as error:
            key = undo_key(self.file.names[error.row], error.key)
            raise InvalidValueError(key, error.value, error.reason) from error

    def prepare(self, config: Config) -> FilePlan:
        """Resolve the overrides over another configuration file, and store the plan; apply nothing yet.

        Other changes wait until the plan is committed or undone. Raises StoreError, with nothing changed.
        """
        self._lock.acquire()
        try:
            overrides, values, digest = self._compute(self._resolve_over, config)
            return self._plan(overrides, values, digest, self._lock.release)
        except BaseException:
            self._lock.release()
            raise

    def _resolve_over(self, config: Config) -> tuple[Overrides, EffectiveSettings, str]:
        """Return the present overrides over another file, the resulting effective values, and the file's digest."""
        overrides = Overrides.build(FileValues(config), self.overrides.vlans, dict(self.overrides.vn_overrides()))
        return overrides, resolve(overrides, AdmittedLimits(config).core_overload), digest_of(overrides.file)

    # -- how a change is made

    def _change(
        self,
        propose: Callable[[int], _Proposal],
        caller: Caller,
        expect: Callable[[], None],
        dry_run: bool,
        *,
        may_be_inactive: bool = False,
    ) -> ChangeOutcome:
        """Check a change, store it and apply it, in this order; a ``dry_run`` is only checked.

        ``propose`` returns the change for its revision. Unless overrides ``may_be_inactive``, those that do not fit
        raise UnfitError.
        """
        with self._lock:
            expect()
            revision = self.revision + 1
            proposal = propose(revision)
            for vlan in proposal.vlans.values():
                check_sharding(self.file.config, vlan.values)
            overrides = self._with_proposal(proposal)
            if may_be_inactive:
                values = resolve(overrides, self.central.fabric.admitted.core_overload)
            else:
                values = resolve_change(
                    overrides, self.values, proposal.vlans, proposal.vns, self.central.fabric.admitted
                )
            before = self.central.config, self.central.vns
            items = changed_items(self.file, proposal.vlans, proposal.vns, before, values, self._yield_after)
            if not dry_run:
                fields = (revision, _utc_now(), caller.who, caller.address, proposal.action, len(items), items)
                self._write(self.store.commit, StoredChange(*fields), proposal.vlans, proposal.vns)
                self.revision, self.overrides = revision, overrides
                self.central.put_in_force(values, self._clock())
                self._record_effective(values)
            return ChangeOutcome(revision if not dry_run else self.revision, values, overrides, len(items))

    def _with_proposal(self, proposal: _Proposal) -> Overrides:
        """Return the present overrides with those of a proposal in place of theirs."""
        overrides = self.overrides.with_vlans(proposal.vlans)
        for batch in batches(proposal.vns.items(), _BATCH_SIZE):
            overrides = overrides.with_vns(dict(batch))
            self._yield_after(len(batch))
        return overrides

    def _record_effective(self, values: EffectiveSettings) -> None:
        """Record the effective values, and an event for each override that has become inactive for a new reason."""
        before, now_s = self.values, self._clock()
        self.values = values
        vlans, vns = values.inactive_vlans.items(), values.inactive_vns.items()
        reasons = [(f"VLAN {vid}", reason, before.inactive_vlans.get(vid)) for vid, reason in vlans]
        reasons += [(self.file.describe(name), reason, before.inactive_vns.get(name)) for name, reason in vns]
        for name, reason, reason_before in reasons:
            if reason != reason_before:
                self.central.note(EventKind.OVERRIDE_INACTIVE, f"override of {name} is not in force: {reason}", now_s)

    def _write(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function that writes to the store; raise StoreError, and record an event if its text is new."""
        try:
            self._run(function, *arguments)
        except StoreError as error:
            if str(error) != self._last_store_error:
                self._last_store_error = str(error)
                self.central.note(EventKind.STORE_WRITE_FAILED, f"a change is refused: {error}", self._clock())
            raise
        self._last_store_error = ""

    def _yield_after(self, count: int) -> None:
        """Let other greenlets run if ``count``, the number of handled items, is a multiple of the batch size."""
        if count % _BATCH_SIZE == 0:
            self._yield_control()

    def _plan(
        self, overrides: Overrides, values: EffectiveSettings, digest: str, release: Callable[[], None] = lambda: None
    ) -> FilePlan:
        """Return the plan to make a file effective; store it as a change if the file's values are new.

        ``digest`` is that of the file's values; the store has the digest of the last file. A node that cannot write the
        store leaves that to the node that can.
        """
        is_stored = self._facts.get(_FILE) == digest and self._facts.get(_FILE_REVISION, "").isdecimal()
        if is_stored or not self.store.writable:
            return FilePlan(self, overrides, values, None, self._facts, release)
        revision = self.revision + 1
        facts = {**self._facts, _FILE: digest, _FILE_REVISION: str(revision)}
        change = StoredChange(revision, _utc_now(), SYSTEM.who, SYSTEM.address, "configuration", 0)
        self._write(self.store.commit, change, {}, {}, facts)
        return FilePlan(self, overrides, values, change, facts, release)

    def commit_plan(self, plan: FilePlan) -> None:
        """Record that the plan's values, which the caller has applied, are effective."""
        self.file, self.overrides, self._facts = plan.overrides.file, plan.overrides, plan.facts
        self._file_revision = int(plan.facts.get(_FILE_REVISION, 0))
        if plan.change is not None:
            self.revision = plan.change.revision
        self._record_effective(plan.values)

    def undo_plan(self, plan: FilePlan) -> None:
        """Remove the plan from the store. Raises StoreError; its revision then counts as used."""
        if plan.change is None:
            return
        try:
            self._write(self.store.undo_last, plan.change, self._facts)
        except StoreError:
            self.revision = plan.change.revision  # it is stored, and must not be used again
            raise


def _utc_now() -> str:
    """Return the present time as RFC 3339 in UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
