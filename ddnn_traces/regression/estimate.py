"""Ordinary least squares on independent columns: estimates, kinds of standard errors, and fits without a group.

All results are computed from the singular value decomposition X D^-1 = U S V' of the design, its columns scaled to
length 1 by D, since columns of bytes and of zeros and ones together would cost digits. Without a run of rows r, U'y
moves by (I - U_r'U_r)^-1 U_r'e; where the other runs cannot determine a coefficient, that matrix is singular, and its
pseudo-inverse gives the move of the rest.

Clustered errors are CR2, with Satterthwaite degrees of freedom (Bell and McCaffrey 2002; Pustejovsky and Tipton 2018),
under the working model of independent rows of one variance: unbiased there, and right for any scatter within clusters
in large samples. Of clusters of one row they are HC2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

#: Numbers, of any shape.
Vector = np.ndarray[Any, np.dtype[np.float64]]
# Differences below this share of the values are rounding, and a test against rounding means nothing.
ROUNDING = 1e-12
# The part of a column, scaled to length 1, that must remain after projection on the columns before it. Rounding leaves
# 1e-15; the nearly collinear Longley data leaves 1e-5.
INDEPENDENT = 1e-9
# Leverage from which a row determines a direction of the coefficients alone: without rounding it would be 1.
ALL = 1 - 1e-8
# A row, coefficient or direction depends on a lost direction where more than this share of its length lies in it.
# Less is rounding.
_PART_OF_LOST = 1e-6
# Condition number up to which a step on the normal equations, which square it, gains digits.
_WELL_CONDITIONED = 1e6


@dataclass(frozen=True)
class Column:
    """A column of the design, named as in `C(topology)[T.star]` and labelled `topology = star`."""

    name: str
    term: str
    label: str
    values: Vector


@dataclass(frozen=True)
class Without:
    """The fit without a group of rows.

    shift: how far U'y's coordinates move. lost: directions in these coordinates that only the group determines, as
    columns. errors: of the group's rows, predicted without it; NaN for rows that cannot be predicted.
    """

    shift: Vector
    lost: Vector
    errors: Vector


@dataclass(frozen=True)
class Scatter:
    """Covariance of U'y, and the degrees of freedom of tests by it.

    df: residual degrees of freedom of the fit. is_estimated: whether each direction has its own estimate, and not the
    one variance of the classic errors. lost: directions in these coordinates, as columns, that one row (hc3) or one
    group (cluster) determines alone: its residual there is 0 whatever the scatter is. own, moved: of clustered errors,
    matrices W and Z of each cluster, by which its part of a direction's variance is a quadratic form of the residuals:
    w_i'w_j is d'W_i d for i = j, less d'Z_i'Z_j d (Pustejovsky and Tipton 2018, section 3).
    """

    covariance: Vector
    df: int
    is_estimated: bool
    lost: tuple[Vector, ...] = ()
    own: Vector | None = None
    moved: Vector | None = None

    def degrees(self, directions: Vector) -> float:
        """Degrees of freedom of a test of these orthonormal directions, as columns.

        Satterthwaite's of one direction (Bell and McCaffrey 2002); of several those of the Wishart distribution that
        approximates their covariance (Pustejovsky and Tipton 2018, equation 11).
        """
        if self.own is None or self.moved is None:
            return float(self.df)
        count = directions.shape[1]
        own = directions.T @ self.own @ directions  # clusters x q x q
        moved = self.moved @ directions  # clusters x p x q
        parts = moved.transpose(1, 0, 2).reshape(moved.shape[1], -1)
        spread = 0.0
        for i, mine in enumerate(moved):  # covariances of w_i with all w_j
            crossed = -(mine.T @ parts).reshape(count, len(moved), count)
            crossed[:, i] += own[i]
            flat = crossed.transpose(0, 2, 1).reshape(count * count, -1)
            swapped = crossed.transpose(2, 0, 1).reshape(count * count, -1)
            spread += float((flat * swapped).sum() + (np.trace(crossed, axis1=0, axis2=2) ** 2).sum())
        return count * (count + 1) / spread if spread > 0 else 0.0

    def each_degrees(self, directions: Vector) -> Vector:
        """Degrees of freedom of a test of each of these directions alone."""
        if self.own is None or self.moved is None:
            return np.full(directions.shape[1], float(self.df))
        found = []
        for direction in directions.T:
            moved = self.moved @ direction
            products = np.diag(self.own @ direction @ direction) - moved @ moved.T
            squares = float((products**2).sum())
            found.append(1 / squares if squares > 0 else 0.0)
        return np.array(found)


@dataclass(frozen=True)
class Estimate:
    """The fit of `response` to `columns`, with at least one residual degree of freedom; groups: the cell of each row.

    deviations: of the rows' scatter, relative to each other, for errors of the kind scaled; None: all the same.
    """

    response: Vector
    columns: tuple[Column, ...]
    groups: tuple[str, ...]
    deviations: Vector | None = None

    @cached_property
    def matrix(self) -> Vector:
        """The design, rows by columns."""
        return np.column_stack([column.values for column in self.columns])

    @cached_property
    def _decomposition(self) -> tuple[Vector, Vector, Vector]:
        norms = np.linalg.norm(self.matrix, axis=0)
        left, singular, right = np.linalg.svd(self.matrix / norms, full_matrices=False)
        return left, singular, right.T / singular / norms[:, None]

    @property
    def basis(self) -> Vector:
        """U: an orthonormal basis of what the columns span, rows by columns."""
        return self._decomposition[0]

    @property
    def to_coefficients(self) -> Vector:
        """The matrix from coordinates in the basis to coefficients: (X'X)^-1 is this times its transpose."""
        return self._decomposition[2]

    @property
    def condition_number(self) -> float:
        """Largest over smallest singular value of the columns scaled to length 1 (Belsley, Kuh and Welsch 1980)."""
        singular = self._decomposition[1]
        return float(singular[0] / singular[-1])

    @cached_property
    def result(self) -> Any:
        """statsmodels' own result, on columns scaled to a mean square of 1.

        By the pseudo-inverse: statsmodels' QR squares the condition number in the standard errors.
        """
        from statsmodels.regression.linear_model import OLS

        return OLS(self.response, self.matrix / self._scale).fit()

    @cached_property
    def _scale(self) -> Vector:
        return np.asarray(np.sqrt(np.mean(self.matrix**2, axis=0)))

    @cached_property
    def is_exact(self) -> bool:
        """Whether all rows lie on the fit to within rounding: a test against rounding means nothing."""
        return bool(np.sqrt(self.result.ssr) <= ROUNDING * np.linalg.norm(self.response))

    @cached_property
    def coefficients(self) -> Vector:
        """One for each column. Where the fit is exact, rounding of the response is 0, not 1e-7 bytes."""
        is_zero = self.is_exact & (abs(self.result.params) <= ROUNDING * np.linalg.norm(self.response))
        return np.where(is_zero, 0.0, self._refined(self.result.params / self._scale))

    def _refined(self, values: Vector) -> Vector:
        """Newton steps on the normal equations, with sums in extended precision where the machine has it.

        Three digits more for NIST's Wampler4 and Wampler5, whose residuals are millions of times the coefficients.
        """
        if self.condition_number > _WELL_CONDITIONED:
            return values
        matrix, response = self.matrix.astype(np.longdouble), self.response.astype(np.longdouble)
        refined = values.astype(np.longdouble)
        for _ in range(2):
            gradient = (matrix.T @ (response - matrix @ refined)).astype(float)
            refined = refined + self.to_coefficients @ (self.to_coefficients.T @ gradient)
        return refined.astype(float)

    @property
    def fitted(self) -> Vector:
        return np.asarray(self.result.fittedvalues)

    @property
    def residuals(self) -> Vector:
        return np.asarray(self.result.resid)

    @property
    def df_resid(self) -> int:
        return len(self.response) - len(self.columns)

    @property
    def variance(self) -> float:
        """Of the residuals: sum of squares over residual degrees of freedom."""
        return float(self.result.ssr) / self.df_resid

    @cached_property
    def leverage(self) -> Vector:
        """Of each row: the diagonal of the hat matrix."""
        return np.asarray(np.sum(self.basis**2, axis=1))

    @cached_property
    def rows_of(self) -> dict[str, Any]:
        """The numbers of the rows of each run, in the order of the runs."""
        groups = np.array(self.groups)
        return {group: np.flatnonzero(groups == group) for group in dict.fromkeys(self.groups)}

    def without(self, rows: Vector) -> Without:
        """The fit without these rows."""
        basis, residuals = self.basis[rows], self.residuals[rows]
        shares, directions = np.linalg.eigh(basis.T @ basis)
        stays = shares < ALL
        stay, lost = directions[:, stays], directions[:, ~stays]
        shift = stay @ ((stay.T @ (basis.T @ residuals)) / (1 - shares[stays]))
        errors = residuals + basis @ shift
        errors[np.linalg.norm(basis @ lost, axis=1) > _PART_OF_LOST] = np.nan
        return Without(shift, lost, errors)

    @cached_property
    def without_run(self) -> dict[str, Without]:
        """The fit without each run."""
        return {run: self.without(rows) for run, rows in self.rows_of.items()}

    def free(self, lost: Vector) -> list[int]:
        """The numbers of the coefficients that lost directions leave undetermined."""
        if not lost.shape[1]:
            return []
        norms = np.linalg.norm(self.matrix, axis=0)
        moves = np.linalg.norm((self.to_coefficients @ lost) * norms[:, None], axis=1)
        return [int(i) for i in np.flatnonzero(moves > _PART_OF_LOST * moves.max())]

    def labels_without(self, part: Without) -> list[str]:
        """Labels of the columns that the fit without some rows cannot estimate."""
        return [self.columns[number].label for number in self.free(part.lost)]

    def weighted(self, deviations: Vector) -> Estimate:
        """The fit that weights each row by 1 over the square of its deviation: of response and columns over it."""
        columns = tuple(replace(column, values=column.values / deviations) for column in self.columns)
        return replace(self, response=self.response / deviations, columns=columns)

    def scatter(self, kind: str) -> Scatter:
        """Of U'y, by kind of standard errors.

        classic: s^2. scaled: s^2 V of rows whose deviations V^1/2 are known but for s, the residual deviation of the
        weighted fit. hc3: MacKinnon and White 1985, each squared residual over (1 - leverage)^2. cluster: CR2 by group.
        """
        if kind == "classic":
            return Scatter(self.variance * np.eye(len(self.columns)), self.df_resid, False)
        if kind == "scaled" and self.deviations is not None:
            spread = self.basis * self.deviations[:, None]
            return Scatter(spread.T @ spread * self.weighted(self.deviations).variance, self.df_resid, False)
        if kind == "hc3":
            alone = self.leverage > ALL
            weighted = np.where(alone, 0.0, self.residuals) / np.where(alone, 1.0, 1 - self.leverage)
            scores = self.basis * weighted[:, None]
            lost = tuple(self.basis[[row]].T for row in np.flatnonzero(alone))
            return Scatter(scores.T @ scores, self.df_resid, True, lost)
        return self._clustered

    @cached_property
    def _clustered(self) -> Scatter:
        """CR2: residuals of a cluster times (I - H_i)^-1/2, without the directions that it determines alone."""
        scores, own, moved = [], [], []
        for rows in self.rows_of.values():
            left, sizes, right = np.linalg.svd(self.basis[rows], full_matrices=False)
            rest = 1 - sizes**2
            stays = rest > 1 - ALL
            factors = np.where(stays, sizes, 0.0) / np.sqrt(np.where(stays, rest, 1.0))
            scores.append(right.T @ (factors * (left.T @ self.residuals[rows])))
            own.append((right.T * factors**2) @ right)
            moved.append((right.T * (factors * sizes)) @ right)
        stacked = np.array(scores)
        lost = tuple(part.lost for part in self.without_run.values() if part.lost.shape[1])
        return Scatter(stacked.T @ stacked, self.df_resid, True, lost, np.array(own), np.array(moved))

    def covariance(self, kind: str) -> tuple[Vector, Vector]:
        """Covariance matrix of the coefficients, and the degrees of freedom of their t-tests.

        NaN in the rows and columns of coefficients that one row (hc3) or one group (cluster) determines alone.
        """
        scatter = self.scatter(kind)
        covariance = self.to_coefficients @ scatter.covariance @ self.to_coefficients.T
        for number in {number for directions in scatter.lost for number in self.free(directions)}:
            covariance[number, :] = covariance[:, number] = np.nan
        directions = self.to_coefficients / np.linalg.norm(self.to_coefficients, axis=1)[:, None]
        return covariance, scatter.each_degrees(directions.T)

    @property
    def information_criteria(self) -> tuple[float, float]:
        """AIC and BIC with the residual variance counted as a parameter, as in R's AIC() and BIC()."""
        return float(self.result.aic) + 2, float(self.result.bic + np.log(self.result.nobs))


def overlap(lost: Vector, directions: Vector) -> bool:
    """Whether a lost direction has a part in any of the directions; both are orthonormal columns."""
    return bool((np.linalg.norm(lost.T @ directions, axis=0) > _PART_OF_LOST).any())


def without_lost(directions: Vector, lost: tuple[Vector, ...]) -> Vector:
    """A basis of the part of the space of `directions` (orthonormal columns) that is orthogonal to all lost ones."""
    touching = [part for part in lost if overlap(part, directions)]
    if not touching:
        return directions
    shares = np.column_stack(touching).T @ directions
    _, singular, right = np.linalg.svd(shares)
    rank = int((singular > _PART_OF_LOST).sum())
    return np.asarray(directions @ right[rank:].T)
