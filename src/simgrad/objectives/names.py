"""What others call our objectives: an unknown name is answered with the spec that was meant.

docs/losses.md has the classes of other libraries with their arguments. A name is never taken for
ours in silence: others' defaults differ (temperatures, directions, sums).
"""

ELSEWHERE = {
    "nt-xent(learned=true)": ("clip", "openclip", "align", "lit", "image-text contrastive", "itc"),
    "nt-xent": (
        "infonce", "info-nce", "simclr", "supcon", "supervised-contrastive", "softmax", "n-pair",
        "npairs", "contrastive", "cross-entropy", "moco", "simcse", "dpr", "cpc", "ntxent",
    ),
    "nt-xent(tau=0.05, direction=i2t)": (
        "mnrl", "MultipleNegativesRanking", "MultipleNegativesRankingLoss", "in-batch-negatives",
        "CachedMultipleNegativesRanking",
    ),
    "nt-xent(tau=0.05)": ("MultipleNegativesSymmetricRanking",),
    "triplet-sh": (
        "vse++", "vsepp", "max-violation", "max-of-hinges", "mh", "batch-hard", "hardest-triplet",
        "triplet-hard", "BatchHardTriplet", "semi-hard", "hardest",
    ),
    "triplet": ("vse0", "sum-of-hinges", "sh", "hinge", "TripletMargin", "ranking", "margin"),
    "siglip": ("SigLipLoss", "sigmoid", "sigmoid-contrastive", "bce"),
    "smooth-ap": ("smoothap", "ap"),
    "multi-similarity-loss": ("ms", "multisimilarity-full"),
    "nca-loss": ("NCALoss", "mil-nce", "neighbourhood-components-analysis"),
    "adap-off-quin": ("aoq", "adaptive-offline-quintuplet", "quintuplet"),
    "debiased-nt-xent": ("dcl", "debiased-contrastive", "debiased-infonce"),
}  # fmt: skip
