# The numbers in reference.json: R's own regression of runs.csv and steps.csv, which are the sample's rows of the queries
# run_step_volume and step_volume_rows. In this folder: Rscript reference.R > reference.json
# Debian's packages r-base-core, r-cran-sandwich, r-cran-car, r-cran-lmtest, r-cran-jsonlite.
suppressMessages({library(sandwich); library(car); library(lmtest); library(jsonlite)})

read <- function(file) {
  rows <- read.csv(file)
  # the level that the others are compared with: the most frequent one, as in ddnn_traces
  rows$framework_backend <- relevel(factor(rows$framework_backend), "torch-gloo")
  rows$topology <- relevel(factor(rows$topology), "ring")
  rows$batch_size <- factor(rows$batch_size)
  rows
}

described <- function(fit) {
  s <- summary(fit)
  whole <- anova(fit, update(fit, . ~ 1))
  drops <- drop1(fit, test = "F")
  list(
    coefficients = as.list(coef(fit)), std_errors = as.list(s$coefficients[, 2]), p_values = as.list(s$coefficients[, 4]),
    low = as.list(confint(fit)[, 1]), high = as.list(confint(fit)[, 2]),
    r_squared = s$r.squared, adj_r_squared = s$adj.r.squared, sigma = s$sigma, df = s$df[2],
    f = s$fstatistic[["value"]], aic = AIC(fit), bic = BIC(fit),
    # drop1() counts in another AIC (extractAIC), so AIC() of each formula
    drop_f = setNames(as.list(drops$`F value`[-1]), rownames(drops)[-1]),
    drop_p = setNames(as.list(drops$`Pr(>F)`[-1]), rownames(drops)[-1]),
    drop_aic = sapply(rownames(drops)[-1], function(t) AIC(update(fit, paste(". ~ . -", t))), simplify = FALSE)
  )
}

runs <- read("runs.csv")
steps <- read("steps.csv")

# Equation (1) of Zerwas et al. 2021. Six runs have leverage 1, where HC3 and Cook's distance are 0/0; without them HC3 is
# defined, and gives the errors of the coefficients that those runs do not determine.
equation <- lm(step_bytes ~ model_bytes + framework_backend + batch_size + topology, runs)
shared <- runs[hatvalues(equation) < 1 - 1e-8, ]
shared_hc3 <- sqrt(diag(vcovHC(update(equation, data = shared), type = "HC3")))

# Without the topology no run has.
small <- lm(step_bytes ~ model_bytes + framework_backend + batch_size, runs)
wald <- function(fit, term, v, df) {
  own <- grep(term, names(coef(fit)))
  b <- coef(fit)[own]
  c(drop(b %*% solve(v[own, own], b)) / length(own), length(own), df)
}
hc3 <- vcovHC(small, type = "HC3")
pagan <- bptest(small)  # studentized (Koenker)

# A row a step.
by_step <- lm(step_bytes ~ model_bytes + framework_backend + batch_size, steps)

predicted <- sapply(seq_len(nrow(runs)), function(i) {
  predict(lm(step_bytes ~ model_bytes + framework_backend + batch_size, runs[-i, ]), runs[i, ])
})

cat(toJSON(list(
  versions = list(R = R.version.string, sandwich = as.character(packageVersion("sandwich")),
                  car = as.character(packageVersion("car")), lmtest = as.character(packageVersion("lmtest"))),
  equation = c(described(equation), list(shared_hc3 = as.list(shared_hc3))),
  small = c(described(small), list(
    hc3 = as.list(sqrt(diag(hc3))),
    hc3_f = wald(small, "framework_backend", hc3, df.residual(small)),
    gvif = as.list(vif(small)[, 1]),
    cooks_distance = unname(cooks.distance(small)),
    leverage = unname(hatvalues(small)),
    studentized = unname(rstudent(small)),
    breusch_pagan = c(pagan$statistic, pagan$p.value),
    left_out = unname(runs$step_bytes - predicted),
    # kappa of the columns scaled to length 1
    condition_number = kappa(apply(model.matrix(small), 2, function(x) x / sqrt(sum(x^2))), exact = TRUE)
  )),
  by_step = described(by_step)
), auto_unbox = TRUE, digits = I(17), pretty = TRUE))
