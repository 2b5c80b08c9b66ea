"""Use ELMo vectors as features of a scikit-learn classifier: is a sentence praise or blame?

python examples/scikit_learn.py
"""

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elmore.integrations.sklearn import ElmoVectorizer

PRAISE = [
    "A wonderful film with a great cast .",
    "I loved every minute of it .",
    "The best meal we have ever had .",
    "She gave a brilliant and moving performance .",
    "A beautiful story , well told .",
    "The service was excellent and the staff friendly .",
]
BLAME = [
    "A terrible film with a weak cast .",
    "I hated every minute of it .",
    "The worst meal we have ever had .",
    "She gave a dull and lifeless performance .",
    "A boring story , badly told .",
    "The service was slow and the staff rude .",
]
NEW = ["A great and moving story .", "The worst film of the year ."]


def main() -> None:
    classifier = make_pipeline(ElmoVectorizer(), StandardScaler(), LogisticRegression(C=0.1))
    classifier.fit(PRAISE + BLAME, ["praise"] * len(PRAISE) + ["blame"] * len(BLAME))
    for sentence, verdict in zip(NEW, classifier.predict(NEW), strict=True):
        print(f"  {verdict:7} {sentence}")


if __name__ == "__main__":
    main()
